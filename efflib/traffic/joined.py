"""A small engine out of parts that somebody else wrote, lab 18's, and the requests it is tried on.

    parts     layout, step        what a pass reads, and what it yields
              slots, attend       where keys lie, and attention over them
              blocks              class: whose blocks, growing and rolled back
              take_out            who is put back in line, or gone

What is given here decides nothing that a text depends on.  Its scheduler is a plain one: who runs
gets all that it lacks, in order; where memory is out the last one that runs is put back; then the
line, while there is room for a whole text.  One's own of lab 14 may stand in its place.

`efflib.engine` is the whole engine, with a server; this one has no server, no sampling, and reads
each request's blocks by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from efflib import zoo
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import text_ids

Piece = tuple[int, int, int]  # request, cached, new
Asked = tuple[list[int], int]  # a prompt, and how many tokens are to come


class Parts(NamedTuple):
    layout: Callable
    step: Callable
    slots: Callable
    attend: Callable
    blocks: type
    take_out: Callable


class Room(NamedTuple):
    """Of an engine: its memory, and the most that a step takes on."""

    blocks: int = 64
    block: int = 16  # tokens
    budget: int = 256  # tokens of a step
    most: int = 8  # requests at once


class Joined:
    """Requests in, tokens out; `log` has (pieces, logits) of every pass."""

    def __init__(
        self, model: Llama, parts: Parts, room: Room, propose: Callable | None = None
    ) -> None:
        c, weight = model.config, model.model.embed_tokens.weight
        self.model, self.parts, self.room, self.propose = model, parts, room, propose
        shape = (2, room.blocks, room.block, c.num_key_value_heads, c.head_dim)
        self.pages = [weight.new_zeros(shape) for _ in range(c.num_hidden_layers)]
        self.cache = parts.blocks(room.blocks, room.block)
        self.running: dict[int, list] = {}  # name -> [text, cached]
        self.waiting: dict[int, list] = {}
        self.prompts: list[list[int]] = []
        self.ends: list[int] = []  # how long each text may become
        self.answers: dict[int, list[int]] = {}
        self.log: list[tuple[list[Piece], int]] = []
        self.found = self.put_back = self.proposed = self.held = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, prompt: Sequence[int], tokens: int) -> int:
        """Joins the line; its name.  Raises ValueError where memory is too short for it alone."""
        end = len(prompt) + tokens
        if -(-(end - 1) // self.room.block) > self.room.blocks:
            raise ValueError(f"{end} tokens do not fit into {self.room.blocks} blocks")
        self.prompts.append(list(prompt))
        self.ends.append(end)
        self.waiting[len(self.ends) - 1] = [list(prompt), 0]
        return len(self.ends) - 1

    def cancel(self, name: int) -> None:
        """It goes, and its blocks are free.  Who has gone already is no fault."""
        self._out(name, False)

    def step(self) -> dict[int, list[int]]:
        """One pass; the new tokens of each request that was in it."""
        proposed = self._proposals()
        pieces = self._pieces(proposed)
        texts = {name: state[0] for name, state in self.running.items()}
        ids, positions, wanted = self.parts.layout(pieces, texts, proposed)
        places = [i for some in wanted for i in some]
        self.log.append((pieces, len(places)))
        best = [-1] * len(ids)
        for i, token in zip(places, self._best(pieces, ids, positions, places), strict=True):
            best[i] = token
        new, cached = self.parts.step(pieces, texts, proposed, best)
        for (name, _, _), some in zip(pieces, wanted, strict=True):
            self.proposed += max(len(some) - 1, 0)
            self.held += max(len(new[name]) - 1, 0)
            self._after(name, texts[name] + new[name], cached[name])
        return new

    def run(self, asked: Sequence[Asked]) -> list[list[int]]:
        """All of them, there at once; the answer of each."""
        names = [self.add(*one) for one in asked]
        while self.busy:
            self.step()
        return [self.answers[name] for name in names]

    # ---- before the pass ----------------------------------------------------------------------

    def _proposals(self) -> dict[int, list[int]]:
        """For who lacks one token, and never more than may come."""
        if self.propose is None:
            return {}
        asking = {n: s[0] for n, s in self.running.items() if len(s[0]) - s[1] == 1}
        most = {name: self.ends[name] - len(text) - 1 for name, text in asking.items()}
        return {n: list(self.propose(text, most[n]))[: most[n]] for n, text in asking.items()}

    def _pieces(self, proposed: dict[int, list[int]]) -> list[Piece]:
        """What the pass reads, with room for it."""
        pieces, budget, before = [], self.room.budget, self.put_back
        for name in list(self.running):
            if name not in self.running:
                break  # put back, as are all behind it
            text, cached = self.running[name]
            n = min(len(text) + len(proposed.get(name, ())) - cached, budget)
            if n > 0 and self._grown(name, cached + n):
                pieces.append((name, cached, n))
                budget -= n
        if self.put_back == before:
            pieces += self._admitted(budget)
        return pieces

    def _grown(self, name: int, length: int) -> bool:
        """Room for it; False where the last one that runs was itself."""
        while name in self.running:
            try:
                self.cache.grow(name, length)
                return True
            except MemoryError:
                self._out(list(self.running)[-1], True)
                self.put_back += 1
        return False

    def _admitted(self, budget: int) -> list[Piece]:
        pieces, block = [], self.room.block
        for name, (text, _) in list(self.waiting.items()):
            if len(self.running) >= self.room.most or budget < 1:
                break
            found = self.cache.start(name, text)
            if len(text) - found > self.cache.free * block:
                self.cache.end(name)
                break
            n = min(len(text) - found, budget)
            self.cache.grow(name, found + n)
            self.running[name] = [self.waiting.pop(name)[0], found]
            pieces.append((name, found, n))
            budget, self.found = budget - n, self.found + found
        return pieces

    def _out(self, name: int, again: bool) -> None:
        if name in self.running:
            self.cache.end(name)
        self.running, self.waiting = self.parts.take_out(self.running, self.waiting, name, again)

    # ---- the pass, and behind it --------------------------------------------------------------

    @torch.inference_mode()
    def _best(self, pieces: list[Piece], ids: list, positions: list, places: list) -> list[int]:
        """The largest logit's token at these places."""
        table = self.parts.slots(pieces, self.cache.tables, self.room.block)
        with reading(self, table, pieces) as cache:
            at, mask = torch.tensor(positions), torch.ones(1, 1, dtype=torch.bool)
            hidden = self.model.hidden(torch.tensor([ids]), cache, at, mask)[0]
        return (
            self.model.lm_head(hidden[torch.tensor(places, dtype=torch.int64)]).argmax(-1).tolist()
        )

    def _after(self, name: int, text: list[int], cached: int) -> None:
        self.running[name] = [text, cached]
        self.cache.roll_back(name, cached)
        self.cache.settle(name, text, cached)
        if len(text) >= self.ends[name]:
            self.answers[name] = text[len(self.prompts[name]) :]
            self._out(name, False)


class Written:
    """What the model takes for its cache: keys and values go into their rows."""

    length = 0  # positions are given

    def __init__(self, pages: list[Tensor], rows: Tensor) -> None:
        self.pages, self.rows = pages, rows

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for page, new in zip(self.pages[layer], (k, v), strict=True):  # new [1, Hkv, T, d]
            page.flatten(0, 1)[self.rows] = new[0].transpose(0, 1)
        return k, v


@contextmanager
def reading(engine: Joined, rows: Tensor, pieces: list[Piece]) -> Iterator[Written]:
    """Inside, every layer attends to the engine's pages; afterwards as before."""
    owners = [layer.self_attn for layer in engine.model.model.layers]
    before = [own.attention for own in owners]

    def over(k_pages: Tensor, v_pages: Tensor) -> Callable:
        def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            tables = engine.cache.tables
            out = engine.parts.attend(q[0].transpose(0, 1), k_pages, v_pages, pieces, tables)
            return out.transpose(0, 1)[None]

        return attention

    try:
        for own, (k_pages, v_pages) in zip(owners, engine.pages, strict=True):
            own.attention = over(k_pages, v_pages)
        yield Written(engine.pages, rows)
    finally:
        for own, dense in zip(owners, before, strict=True):
            own.attention = dense


def trace(n: int, seed: int = 0, shared: int = 32) -> list[Asked]:
    """Prompts of held-out code, 36 to 119 tokens, 16 to 48 to come; four begin alike."""
    draw, text, asked, start = Random(seed), text_ids("code", True).tolist(), [], []
    for i in range(n):
        if i % 4 == 0:
            at = draw.randrange(len(text) - 200)
            start = text[at : at + shared - 1]
        at, length = draw.randrange(len(text) - 200), draw.randint(4, 87)
        asked.append(([zoo.BEGIN_ID, *start, *text[at : at + length]], draw.randint(16, 48)))
    return asked
