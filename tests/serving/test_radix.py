"""The radix tree against a set of all prefixes, and what conversations lose by either end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.serving.radix import Radix
from efflib.traffic.dropping import Leading, Tree, Turn, flops_between, served
from efflib.traffic.simulate import LLAMA_8B

texts = st.lists(st.integers(0, 1), max_size=6).map(tuple)
operations = st.lists(
    st.tuples(st.sampled_from(["match", "insert", "hold", "release", "evict"]), texts), max_size=25
)


class Prefixes:
    """Every stored prefix with when it was used, who holds it, and whether an edge ends there."""

    def __init__(self):
        self.used, self.holders, self.cuts, self.now, self.held = {}, {}, set(), 0, []

    def found(self, text):
        return max(i for i in range(len(text) + 1) if i == 0 or text[:i] in self.used)

    def edge(self, text):
        """All prefixes of the edge in which a stored text ends: up to the next cut."""
        start = max((i for i in range(len(text)) if text[:i] in self.cuts), default=0)
        return [text[:i] for i in range(start + 1, len(text) + 1)]

    def touch(self, text, n):
        self.now += 1
        for i in range(1, n + 1):
            self.used[text[:i]] = self.now
        # the whole edge in which the match ends counts as used
        end = text[:n]
        while n and end not in self.cuts:
            [end] = [p for p in self.used if len(p) == len(end) + 1 and p[:-1] == end]
            self.used[end] = self.now

    def apply(self, name, text):
        if name == "match":
            n = self.found(text)
            self.touch(text, n)
            return n
        if name == "insert":
            n = self.found(text)
            self.cuts |= {text[:n], text} - {()}
            for i in range(n + 1, len(text) + 1):
                self.holders[text[:i]] = 0
            self.touch(text, len(text))
            return len(text) - n
        if name == "hold":
            n = self.found(text)
            self.cuts |= {text[:n]} - {()}
            self.touch(text, n)
            for i in range(1, n + 1):
                self.holders[text[:i]] += 1
            self.held.append(text[:n])
            return n
        gone = 0
        while gone < len(text):
            leaves = [
                p
                for p in self.used
                if not any(q[:-1] == p for q in self.used) and not self.holders[p]
            ]
            if not leaves:
                break
            oldest = min(leaves, key=lambda p: self.used[p])
            for p in self.edge(oldest):
                del self.used[p], self.holders[p]
                gone += 1
            self.cuts.discard(oldest)
        return gone


@settings(max_examples=300, deadline=None)
@given(operations)
def test_equal_to_a_set_of_prefixes(walk):
    tree, model = Radix(), Prefixes()
    for name, text in walk:
        if name == "release":
            if not model.held:
                continue
            text = model.held.pop(len(text) % len(model.held))
            tree.release(text)
            for i in range(1, len(text) + 1):
                model.holders[text[:i]] -= 1
        elif name == "evict":
            assert tree.evict(len(text)) == model.apply(name, text)
        else:
            assert getattr(tree, name)(text) == model.apply(name, text)
        assert tree.size() == len(model.used)
        leaves = sorted(p for p in model.used if not any(q[:-1] == p for q in model.used))
        assert tree.texts() == leaves


def test_what_is_not_held_cannot_be_released():
    tree = Radix()
    tree.insert([1, 2, 3])
    for text in ([1, 2, 3], [1, 2], [7]):
        with pytest.raises(ValueError, match="not held"):
            tree.release(text)
    assert tree.hold([1, 2, 9]) == 2
    assert tree.evict(9) == 1 and tree.texts() == [(1, 2)]
    tree.release([1, 2])
    assert tree.evict(9) == 2 and tree.size() == 0


@given(st.integers(0, 50), st.integers(0, 50))
def test_flops_add_up(a, b):
    first, end = sorted((a, b))
    each = sum(LLAMA_8B.token + LLAMA_8B.pair * (i + 1) for i in range(first, end))
    assert flops_between(LLAMA_8B, first, end) == pytest.approx(each)


def turns_of(people, rounds, shared=0, size=8):
    """Conversations that take turns; the first `shared` tokens are the same for all."""
    so_far = {p: tuple(range(shared)) for p in range(people)}
    turns, fresh = [], 10_000
    for _ in range(rounds):
        for p in range(people):
            new = tuple(range(fresh, fresh + 2 * size))
            fresh += 2 * size
            turns.append(Turn(p, so_far[p] + new[:size], new[size:]))
            so_far[p] += new
    return turns


def test_with_room_for_all_only_what_is_new_is_computed():
    turns = turns_of(3, 4, shared=16)
    caches = Leading(10_000), Tree(Radix, 10_000, apart=True), Tree(Radix, 10_000)
    for turn in turns:
        new = len(turn.prompt) - 8
        first = 0 if new == 16 else new
        assert caches[0].serve(turn) == caches[1].serve(turn) == [(first, new + 8)]
        [(known, end)] = caches[2].serve(turn)
        assert (known, end) == (0 if turn is turns[0] else new, new + 8)


@pytest.mark.parametrize("capacity", [30, 100, 200])
def test_capacity_holds_and_equal_ends_lose_equally(capacity):
    turns = turns_of(4, 6)
    for make in (lambda: Leading(capacity, 8), lambda: Tree(Radix, capacity)):
        cache = make()
        for turn in turns:
            for first, end in cache.serve(turn):
                assert 0 <= first < end <= len(turn.prompt)
            size = cache.size() if isinstance(cache, Leading) else cache.tree.size()
            assert size <= capacity


def test_leading_tokens_are_cheaper_and_shared_beginnings_are_dear():
    long = turns_of(4, 6, size=2000)
    heads, tails = (served(c, long, LLAMA_8B) for c in (Leading(50_000), Tree(Radix, 50_000, True)))
    assert heads[1] < tails[1]
    shared = turns_of(12, 3, shared=4000, size=50)
    heads, tails = (served(c, shared, LLAMA_8B) for c in (Leading(20_000), Tree(Radix, 20_000)))
    assert tails[1] < heads[1] / 2
