"""The board of lab 18: the modelled seconds of other requests, with a student's choices.

The student's `settings` and `own` choose; the engine around them is the grader's, with parts of its
own, and no model runs: the answers are known (board.toml), so a proposal holds if it is the next
token of its request's answer.  A text cannot become another one, whatever is proposed.
"""

import math
import tomllib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

from efflib.traffic.joined import Joined, Parts, Room
from efflib.traffic.simulate import LLAMA_8B, step_seconds

UNIT = "modelled s on an H100"
MEMORY, MOST_PASSES = 1120, 3000  # tokens; one pass for each token would be some 600
HERE = Path(__file__).parent


class Released:
    """The choices that the notebook comes with: the settings of section 4."""

    def settings(self):
        return {"blocks": 70, "block": 16, "budget": 64, "most": 8}

    def own(self, text, n):
        ends = [i for i in range(2, len(text)) if text[i - 2 : i] == text[-2:]]
        return text[ends[-1] : ends[-1] + min(n, 4)] if ends else []


def measure(student) -> float:
    """Seconds of LLAMA_8B for all passes. Raises ValueError, with a sentence, if there are none."""
    asked = tomllib.loads((HERE / "board.toml").read_text(encoding="utf-8"))["asked"]
    engine = Known(asked, room_of(student.settings()), lambda *a: proposals_of(student.own(*a)))
    for one in asked:
        engine.add(one["prompt"], len(one["answer"]))
    while engine.busy:
        if len(engine.log) == MOST_PASSES:
            raise ValueError(f"not done after {MOST_PASSES} passes")
        engine.step()
    return math.fsum(seconds(*did) for did in engine.log)


def seconds(pieces: list, logits: int) -> float:
    """As lab 18 counts: a logit's row of lm_head for each place that is asked for."""
    machine = LLAMA_8B._replace(head=LLAMA_8B.head * logits / max(len(pieces), 1))
    return step_seconds(machine, [(name, n, cached) for name, cached, n in pieces])


def room_of(settings: object) -> Room:
    if not isinstance(settings, dict) or set(settings) != set(Room._fields):
        raise ValueError(f"settings() has {', '.join(Room._fields)}")
    if not all(type(value) is int and 1 <= value <= 10**9 for value in settings.values()):
        raise ValueError("settings are whole numbers from 1 on")
    if settings["blocks"] * settings["block"] > MEMORY:
        raise ValueError(f"more than {MEMORY} tokens of memory")
    return Room(**settings)


def proposals_of(value: object) -> list:
    if not isinstance(value, (list, tuple)) or not all(type(token) is int for token in value):
        raise ValueError("own gives a list of ints")
    return list(value)


# ---- the engine --------------------------------------------------------------------------------


class Known(Joined):
    """The lab's engine, where the answers are known."""

    def __init__(self, asked: list, room: Room, propose) -> None:
        config = SimpleNamespace(num_hidden_layers=0, num_key_value_heads=1, head_dim=1)
        table = SimpleNamespace(embed_tokens=SimpleNamespace(weight=None))
        parts = Parts(layout, step, None, None, Blocks, take_out)
        super().__init__(SimpleNamespace(config=config, model=table), parts, room, propose)
        self.whole = [[*one["prompt"], *one["answer"]] for one in asked]

    def _best(self, pieces, ids, positions, places) -> list[int]:
        """Behind a proposal that does not hold anything may be said: nobody looks at it."""
        names = [name for name, _, n in pieces for _ in range(n)]
        return [self.whole[names[i]][positions[i] + 1] for i in places]


def layout(pieces, texts, proposed):
    ids, positions, wanted = [], [], []
    for name, cached, n in pieces:
        skipped = max(len(texts[name]) - 1 - cached, 0)
        wanted.append(list(range(len(positions) + skipped, len(positions) + n)))
        positions += range(cached, cached + n)
        ids += (texts[name] + proposed.get(name, []))[cached : cached + n]
    return ids, positions, wanted


def step(pieces, texts, proposed, best):
    new, after, here = {}, {}, 0
    for name, cached, n in pieces:
        known, end = len(texts[name]), cached + n
        said = best[here + known - 1 - cached : here + n] if end >= known else []
        right = 0
        for guess, own in zip(proposed.get(name, []), said[:-1], strict=False):
            if guess != own:
                break
            right += 1
        new[name], after[name] = said[: right + 1], known + right if said else end
        here += n
    return new, after


def take_out(running, waiting, name, again):
    text = running.get(name, waiting.get(name, [[], 0]))[0]
    running, waiting = ({k: v for k, v in some.items() if k != name} for some in (running, waiting))
    return running, {name: [text, 0], **waiting} if again else waiting


class Blocks:
    """Blocks found by a chain of numbers, one for each beginning that was ever settled."""

    def __init__(self, blocks: int, block: int) -> None:
        self.block, self.tables = block, {}
        self.line = dict.fromkeys(range(blocks))  # free, the longest first
        self.users = [0] * blocks
        self.chain: dict[tuple, int] = {}  # (number of a beginning, next block's tokens) -> number
        self.holds: dict[int, set[int]] = {}  # number of a beginning -> blocks
        self.number = [0] * blocks

    @property
    def free(self) -> int:
        return len(self.line)

    def start(self, name, text) -> int:
        table, beginning = [], 0
        for at, end in pairwise(range(0, len(text), self.block)):
            beginning = self.chain.get((beginning, *text[at:end]), -1)
            held = self.holds.get(beginning)
            if not held:
                break
            taken = min(held)
            self.line.pop(taken, None)
            self.users[taken] += 1
            table.append(taken)
        self.tables[name] = table
        return len(table) * self.block

    def grow(self, name, length: int) -> None:
        table = self.tables[name]
        needs = -(-length // self.block) - len(table)
        if needs > len(self.line):
            raise MemoryError
        for _ in range(needs):
            taken = next(iter(self.line))
            del self.line[taken]
            self.holds.get(self.number[taken], set()).discard(taken)
            self.users[taken], self.number[taken] = 1, 0
            table.append(taken)

    def roll_back(self, name, length: int) -> None:
        table = self.tables[name]
        while len(table) > -(-length // self.block):
            last = table.pop()
            self.users[last] -= 1
            if not self.users[last]:
                self.line[last] = None

    def settle(self, name, text, cached: int) -> None:
        beginning = 0
        for i in range(cached // self.block):
            key = (beginning, *text[i * self.block : (i + 1) * self.block])
            beginning = self.chain.setdefault(key, len(self.chain) + 1)
            held = self.tables[name][i]
            self.number[held] = beginning
            self.holds.setdefault(beginning, set()).add(held)

    def end(self, name) -> None:
        self.roll_back(name, 0)
        del self.tables[name]
