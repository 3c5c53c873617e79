"""Walks: one call for all of them, and a failing one is made as short as it can be."""

import pytest

from efflib.lab.walks import expect_walks

OPS = [("put", 1), ("put", 2), ("take",), ("put", 3), ("take",), ("take",)]


def stack(walk, faulty):
    """What a stack gives; the faulty one loses what is put on top of two."""
    held, seen = [], []
    for name, *args in walk:
        if name == "put":
            if not (faulty and len(held) == 2):
                held.append(args[0])
            seen.append(None)
        else:
            seen.append(held.pop() if held else "empty")
    return seen


def judge(walk, seen):
    for i, (have, want) in enumerate(zip(seen, stack(walk, False), strict=True)):
        if have != want:
            return i, f"{have} came, {want} was expected"
    return None


def check(walks, faulty, shorten=True):
    calls = []

    def run(walks):
        calls.append(len(walks))
        return [stack(walk, faulty) for walk in walks]

    def possible(walk):
        return walk

    try:
        expect_walks(run, walks, judge, possible, lambda op: " ".join(map(str, op)), shorten)
    finally:
        check.calls = calls


def test_what_is_right_costs_one_call():
    check([OPS, OPS[:3], []], faulty=False)
    assert check.calls == [3]


LONG = [("put", 1), ("take",), ("put", 4), ("put", 5), ("put", 6), ("take",), ("take",)]


def test_a_failing_walk_is_made_short():
    with pytest.raises(AssertionError, match=r"^put \d, put \d, put \d, take: \d came, \d was"):
        check([OPS, LONG], faulty=True)
    assert check.calls[0] == 2 and len(check.calls) > 2


def test_where_nobody_reads_it_one_call_is_enough():
    with pytest.raises(AssertionError, match="^put 1, take, put 4"):
        check([OPS, LONG], faulty=True, shorten=False)
    assert check.calls == [2]
