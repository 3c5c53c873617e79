"""Tokens that may come next, for many requests at once.

    lookup   what followed the last time that the text ended like this: no model, no pass
    model    a small model with a cache of its own, one pass for all requests per token

Both propose with certainty (the small model its largest logit): `choosing` counts on it.
`efflib.decoding.drafts` is the same for one text.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from efflib.checks import expect_whole
from efflib.engine.blocks import BlockCache
from efflib.engine.passes import Piece, mixed_pass
from efflib.models.llama import Llama
from efflib.serving.blocks import OutOfBlocks


class Proposer(Protocol):
    """What the engine needs of one."""

    def propose(
        self, texts: Mapping[int, Sequence[int]], counts: Mapping[int, int]
    ) -> dict[int, list[int]]:
        """Of each text at most so many tokens."""
        ...

    def forget(self, name: int) -> None:
        """The request has ended, or was never known."""
        ...


class Lookup:
    """`drafts.lookup` with an index of where each n-gram stood last, which grows with the text."""

    def __init__(self, longest: int = 3) -> None:
        expect_whole(1, longest=longest)
        self.longest = longest
        self._known: dict[int, tuple[int, dict[tuple, int]]] = {}  # tokens read, n-gram -> its end

    def propose(
        self, texts: Mapping[int, Sequence[int]], counts: Mapping[int, int]
    ) -> dict[int, list[int]]:
        return {name: self._after(name, text, counts[name]) for name, text in texts.items()}

    def _after(self, name: int, text: Sequence[int], count: int) -> list[int]:
        read, ends = self._known.get(name, (1, {}))
        for end in range(read, len(text)):  # n-grams that end before the last token
            for n in range(1, min(self.longest, end) + 1):
                ends[tuple(text[end - n : end])] = end
        self._known[name] = (max(read, len(text)), ends)
        for n in range(min(self.longest, len(text) - 1), 0, -1):
            if (end := ends.get(tuple(text[-n:]))) is not None:
                return list(text[end : end + count])
        return []

    def forget(self, name: int) -> None:
        self._known.pop(name, None)


class SmallModel:
    """A draft of the same vocabulary; what it has read of a text stays in its own blocks."""

    def __init__(self, model: Llama, blocks: int, block: int) -> None:
        self.model, self.cache = model, BlockCache(model, blocks, block)
        self.passes: list[list[tuple[int, int, int]]] = []  # of each: (request, new, cached)
        self._read: dict[int, list[int]] = {}  # the tokens whose keys are cached

    def propose(
        self, texts: Mapping[int, Sequence[int]], counts: Mapping[int, int]
    ) -> dict[int, list[int]]:
        """Greedy; who finds no block is left without proposals from there on."""
        found: dict[int, list[int]] = {name: [] for name in texts}
        asking = {name: self._unread(name, texts[name]) for name in texts if counts[name]}
        while asking:
            pieces = [piece for name in asking if (piece := self._piece(name, asking[name]))]
            if not pieces:
                break
            self.passes.append([(p.name, len(p.ids), p.start) for p in pieces])
            best = mixed_pass(self.model, self.cache, pieces).argmax(-1).tolist()
            asking = {}
            for piece, token in zip(pieces, best, strict=True):
                self._read[piece.name] += piece.ids
                found[piece.name].append(token)
                if len(found[piece.name]) < counts[piece.name]:
                    asking[piece.name] = [token]
        return found

    def _unread(self, name: int, text: Sequence[int]) -> list[int]:
        """What it has not read of a text; what it read beyond it, its proposals, is rolled back."""
        if name not in self.cache.tables:
            self.cache.start(name, [])
            self._read[name] = []
        read = self._read[name]
        same = 0
        while same < min(len(read), len(text) - 1) and read[same] == text[same]:
            same += 1
        del read[same:]
        self.cache.roll_back(name, same)
        return list(text[same:])

    def _piece(self, name: int, ids: list[int]) -> Piece | None:
        start = len(self._read[name])
        try:
            self.cache.grow(name, start + len(ids))
        except OutOfBlocks:
            return None
        return Piece(name, start, ids, 1)

    def forget(self, name: int) -> None:
        if name in self.cache.tables:
            self.cache.end(name)
            del self._read[name]
