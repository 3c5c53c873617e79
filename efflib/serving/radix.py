"""A cache of texts as a radix tree: what begins alike is stored once.

    root -- "You are a helpful" --+-- " cook. Soup?"
                                  +-- " judge."

An edge holds as many tokens as nobody leaves it in the middle of; it is cut where somebody does.

    match    how many tokens of a text are there, in the middle of an edge as well
    insert   the rest becomes a leaf; an edge that is left in its middle is cut
    hold     a request computes with the tokens of a text: they must stay.  release: no longer
    evict    leaves that nobody holds go, the one that was used longest ago first, whole edges; an
             inner edge whose last leaf went is a leaf then, and may be the next

Leaves go first because what lies behind a token is of no use without it, and because the beginning
is what many share.  `efflib.traffic.dropping` has the opposite.

Where well-known implementations differ: SGLang cuts an edge at a match too, keeps rows of its pool
beside the tokens, works in pages, and keeps trees apart for adapters (extra_key).  vLLM has no tree
but chained hashes of full blocks (`efflib.serving.prefix`), which share no part of a block.
Source: Zheng et al. 2023, "SGLang" (arXiv:2312.07104), section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Tokens = Sequence[int]


class Edge:
    """Tokens behind a parent, and the edges behind them by their first token."""

    def __init__(self, tokens: Tokens, parent: Edge | None) -> None:
        self.tokens, self.parent = tuple(tokens), parent
        self.children: dict[int, Edge] = {}
        self.used = self.holders = 0  # when last; how many

    def cut(self, at: int) -> Edge:
        """The first `at` tokens as an edge of their own, in front of this one, with its holders."""
        upper = Edge(self.tokens[:at], self.parent)
        upper.used, upper.holders = self.used, self.holders
        self.parent.children[self.tokens[0]] = upper
        self.tokens, self.parent = self.tokens[at:], upper
        upper.children[self.tokens[0]] = self
        return upper


class Radix:
    """The tree; texts are sequences of ints."""

    def __init__(self) -> None:
        self.root, self.now = Edge((), None), 0

    def size(self) -> int:
        """Tokens that are stored."""
        return sum(len(edge.tokens) for edge in self._edges(self.root))

    def match(self, tokens: Tokens) -> int:
        """How many of the first tokens are stored.  What is found counts as used now."""
        path, found = self._walk(tuple(tokens))
        self._touch(path)
        return found

    def insert(self, tokens: Tokens) -> int:
        """Stores a text; returns how many tokens of it were new.  All of it counts as used now."""
        tokens = tuple(tokens)
        path, found = self._walk(tokens, cut=len(tokens))
        if found < len(tokens):
            leaf = Edge(tokens[found:], path[-1])
            path[-1].children[tokens[found]] = leaf
            path.append(leaf)
        self._touch(path)
        return len(tokens) - found

    def hold(self, tokens: Tokens) -> int:
        """Whoever computes with a text holds what is stored of it; returns how many tokens.

        It counts as used now, and an edge is cut behind it, so that no more is held.
        """
        path, found = self._walk(tuple(tokens), cut=len(tokens))
        self._touch(path)
        for edge in path[1:]:
            edge.holders += 1
        return found

    def release(self, tokens: Tokens) -> None:
        """One holder less of just these tokens.  Raises ValueError if they are not held."""
        path, found = self._walk(tuple(tokens))
        held = all(edge.holders for edge in path[1:])
        if found < len(tokens) or not held or sum(len(edge.tokens) for edge in path) != found:
            raise ValueError(f"these {len(tokens)} tokens are not held")
        for edge in path[1:]:
            edge.holders -= 1

    def evict(self, tokens: int) -> int:
        """Drops leaves until `tokens` tokens are gone, or nothing may go; returns how many went."""
        gone = 0
        while gone < tokens:
            leaves = [e for e in self._edges(self.root) if not e.children and not e.holders]
            if not leaves:
                break
            oldest = min(leaves, key=lambda edge: edge.used)
            del oldest.parent.children[oldest.tokens[0]]
            gone += len(oldest.tokens)
        return gone

    def texts(self) -> list[tuple[int, ...]]:
        """Every leaf with all tokens before it, in order."""
        found = []
        for edge in self._edges(self.root):
            if not edge.children:
                parts = []
                while edge is not None:
                    parts.append(edge.tokens)
                    edge = edge.parent
                found.append(sum(reversed(parts), ()))
        return sorted(found)

    def _walk(self, tokens: tuple[int, ...], cut: int | None = None) -> tuple[list[Edge], int]:
        """(edges from the root that begin a text, tokens found); with cut, none goes beyond it."""
        path, found = [self.root], 0
        while found < len(tokens) and tokens[found] in path[-1].children:
            edge = path[-1].children[tokens[found]]
            same = _common(edge.tokens, tokens, found)
            if same < len(edge.tokens) and cut is not None:
                edge = edge.cut(same)
            path.append(edge)
            found += same
            if same < len(edge.tokens):
                break
        return path, found

    def _touch(self, path: list[Edge]) -> None:
        self.now += 1
        for edge in path:
            edge.used = self.now

    def _edges(self, edge: Edge) -> Iterator[Edge]:
        """All edges below one."""
        stack = list(edge.children.values())
        while stack:
            edge = stack.pop()
            stack.extend(edge.children.values())
            yield edge


def _common(edge: tuple[int, ...], tokens: tuple[int, ...], start: int) -> int:
    """How many tokens of an edge a text has from `start` on."""
    most = min(len(edge), len(tokens) - start)
    if edge[:most] == tokens[start : start + most]:
        return most
    return next(i for i in range(most) if edge[i] != tokens[start + i])
