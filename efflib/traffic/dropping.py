"""What a cache of conversations drops when it is full: tails, or the beginnings.

    FLOPs of the tokens a to b of a text of n      token (b - a) + pair (a + 1 + ... + b)

A token costs more the later it stands, because it sees all before it.  So if some tokens of a text
have to be computed again, the cheapest are the first ones: Pensieve (Yu et al. 2023,
arXiv:2312.05516) drops leading tokens, and computes them again while the rest of the text is still
cached.  RadixAttention drops tails, and keeps the beginnings, which other texts may share.

How much cheaper?  By the share of attention in the work: token / pair tokens of context cost as
much again as the matrices (27,000 for Llama-3.1-8B).  At contexts far below that all tokens cost
about the same, and what decides is how many are computed again.

A tree drops whole edges, though, and more than it needs: `Trailing` drops tails in the same small
pieces as `Leading`, so that only the end is another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import NamedTuple

from efflib.traffic.simulate import Machine


class Turn(NamedTuple):
    """A request of a conversation: all of its text so far, and what the answer adds."""

    who: Hashable
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def conversations(people: int, rounds: int, turn: int, shared: int, seed: int = 0) -> list[Turn]:
    """people x rounds turns, whose turn is drawn; each adds `turn` tokens, half of them an answer.

    The first `shared` tokens of all conversations are the same.
    """
    random, texts = Random(seed), {who: tuple(range(shared)) for who in range(people)}
    turns, fresh = [], 10**6
    for _ in range(people * rounds):
        who, new = random.randrange(people), tuple(range(fresh, fresh + turn))
        turns.append(Turn(who, texts[who] + new[: turn // 2], new[turn // 2 :]))
        texts[who], fresh = texts[who] + new, fresh + turn
    return turns


def flops_between(machine: Machine, first: int, end: int) -> float:
    """FLOPs of the tokens first .. end - 1 of a text, each of which sees all before it."""
    met = (end * (end + 1) - first * (first + 1)) // 2
    return machine.token * (end - first) + machine.pair * met


class Leading:
    """Each conversation keeps a tail of its text; who was used longest ago loses from its front.

    chunk: tokens that go at a time.  Nothing is shared between conversations.
    """

    def __init__(self, capacity: int, chunk: int = 32) -> None:
        self.capacity, self.chunk = capacity, chunk
        self.kept: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()  # who -> (first, end)

    def size(self) -> int:
        """Tokens that are stored."""
        return sum(end - first for first, end in self.kept.values())

    def serve(self, turn: Turn) -> list[tuple[int, int]]:
        """Which stretches (first, end) of the prompt are computed; then all of the text is kept."""
        first, end = self.kept.pop(turn.who, (0, 0))
        n = len(turn.prompt)
        end = min(end, n - 1)  # the last token is always computed
        missing = [(0, first), (end, n)] if first < end else [(0, n)]
        total = n + len(turn.answer)
        self._drop(total - self.capacity if total > self.capacity else 0, total)
        self.kept[turn.who] = self.cut(0, total, max(0, total - self.capacity))
        return [(a, b) for a, b in missing if a < b]

    def _drop(self, too_many: int, coming: int) -> None:
        """Room for `coming` tokens, less those that fit in no case."""
        over = self.size() + coming - too_many - self.capacity
        while over > 0 and self.kept:
            who = next(iter(self.kept))
            first, end = self.kept[who]
            goes = min(-(-over // self.chunk) * self.chunk, end - first)
            over -= goes
            if first + goes == end:
                del self.kept[who]
            else:
                self.kept[who] = self.cut(first, end, goes)

    def cut(self, first: int, end: int, goes: int) -> tuple[int, int]:
        """What is kept of the stretch (first, end) when so many tokens go."""
        return first + goes, end


class Trailing(Leading):
    """The control: the same cache, which loses as many tokens at a time from the other end."""

    def cut(self, first: int, end: int, goes: int) -> tuple[int, int]:
        """What is kept of the stretch (first, end) when so many tokens go."""
        return first, end - goes


class Tree:
    """A radix tree of one's own as the same cache: leaves go when there is no room.

    tree: match, insert, evict, size, hold and release as `efflib.serving.radix.Radix` has them.
    apart: a conversation shares nothing with others (its name stands before its tokens).
    """

    def __init__(self, tree: Callable, capacity: int, apart: bool = False) -> None:
        self.tree, self.capacity, self.apart = tree(), capacity, apart
        self.names: dict[Hashable, int] = {}

    def serve(self, turn: Turn) -> list[tuple[int, int]]:
        """Which stretches of the prompt are computed; what fits of the text is kept."""
        head = (-1 - self.names.setdefault(turn.who, len(self.names)),) if self.apart else ()
        text = head + turn.prompt + turn.answer
        held = text[: self.tree.hold(head + turn.prompt)]
        known = min(max(len(held) - len(head), 0), len(turn.prompt) - 1)
        # `head` is no token of the text, and takes no room
        room = self.capacity - (self.tree.size() - self._heads())
        need = len(text) - len(held) - room
        if need > 0:
            room += self.tree.evict(need)
        self.tree.release(held)
        self.tree.insert(text[: len(held) + max(room, 0)])
        return [(known, len(turn.prompt))]

    def _heads(self) -> int:
        return len(self.names) if self.apart else 0


def served(cache: Leading | Tree, turns: Sequence[Turn], machine: Machine) -> tuple[float, float]:
    """(share of prompt tokens found, FLOPs of all prompts' tokens that are computed)."""
    computed = flops = asked = 0.0
    for turn in turns:
        asked += len(turn.prompt)
        for first, end in cache.serve(turn):
            computed += end - first
            flops += flops_between(machine, first, end)
    return 1 - computed / asked, flops


def four_ends(
    turns: Sequence[Turn], tree: Callable, part: float, machine: Machine
) -> dict[str, float]:
    """PFLOPs of all prompts by what goes first, with room for a part of all that is ever stored.

    The four differ by one thing each: the end; pieces of 32 tokens or whole edges; what is shared.
    """
    stored = len({token for turn in turns for token in turn.prompt + turn.answer})
    room = int(part * stored)
    caches = {"leading go": Leading(room), "tails go, in pieces": Trailing(room)}
    caches |= {"whole leaves, apart": Tree(tree, room, apart=True)}
    caches["whole leaves, shared"] = Tree(tree, room)
    return {name: served(cache, turns, machine)[1] / 1e15 for name, cache in caches.items()}
