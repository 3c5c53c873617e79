"""Schedulers: invariants of any state, both sides of each limit, and a server driven by them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.serving.schedulers import (
    blocks_for,
    line_after,
    mixed_chunks,
    preempting,
    prefill_first,
)

ALL = (prefill_first, mixed_chunks, lambda *state: preempting(*state).work)


@st.composite
def states(draw):
    running = []
    for i in range(draw(st.integers(0, 5))):
        cached = draw(st.integers(1, 20))
        running.append((i, cached + draw(st.integers(1, 9)), cached))
    waiting = [(10 + i, draw(st.integers(1, 20))) for i in range(draw(st.integers(0, 4)))]
    limits = [draw(st.integers(*ends)) for ends in ((0, 12), (1, 30), (1, 8), (1, 5))]
    return running, waiting, *limits


@given(states())
def test_no_limit_is_broken_and_nobody_overtakes(state):
    running, waiting, free, budget, most, block = state
    cached = {name: c for name, _, c in running}
    lacks = {name: t - c for name, t, c in running} | dict(waiting)
    for schedule in ALL:
        work = schedule(*state)
        put_back = preempting(*state).put_back if schedule is ALL[2] else []
        names = [name for name, _ in work]
        assert len(set(names)) == len(names) and not set(names) & set(put_back)
        assert sum(n for _, n in work) <= budget
        assert all(1 <= n <= lacks[name] for name, n in work)
        more = sum(
            blocks_for(cached.get(i, 0) + n, block) - blocks_for(cached.get(i, 0), block)
            for i, n in work
        )
        back = sum(blocks_for(cached[i], block) for i in put_back)
        assert more <= free + back
        new = [name for name in names if name not in cached]
        assert new == [name for name, _ in waiting][: len(new)]
        assert not new or len(running) + len(new) <= most
        assert not (new and put_back)
        order = [name for name, _, _ in running]
        assert put_back == order[::-1][: len(put_back)]  # from the end


@given(states())
def test_nothing_is_left_that_could_be_done(state):
    running, waiting, free, budget, most, block = state
    work, put_back = preempting(*state)
    left = budget - sum(n for _, n in work)
    given_to = dict(work)
    for name, tokens, cached in running:
        if name not in put_back and left:
            assert given_to.get(name, 0) > 0 and (
                given_to[name] == tokens - cached or (cached + given_to[name]) % block == 0
            )
    plain = mixed_chunks(*state)
    enough = sum(blocks_for(t, block) - blocks_for(c, block) for _, t, c in running) <= free
    if enough:
        assert work == plain and not put_back


def test_prompts_and_answers_are_never_in_one_step():
    running, waiting = [("A", 9, 8), ("B", 6, 5)], [("C", 7), ("D", 4), ("E", 1)]
    assert prefill_first(running, waiting, 4, 11, 9, 4) == [("C", 7), ("D", 4)]
    assert prefill_first(running, waiting, 2, 10, 9, 4) == [("C", 7)]
    assert prefill_first(running, waiting, 1, 10, 9, 4) == [("A", 1), ("B", 1)]
    assert prefill_first(running, waiting, 0, 10, 9, 4) == [("B", 1)]  # A needs a block
    assert prefill_first(running, waiting, 9, 10, 2, 4) == [("A", 1), ("B", 1)]
    assert prefill_first(running, waiting, 1, 1, 9, 4) == [("A", 1)]


def test_chunks_by_hand():
    running, waiting = [("A", 9, 8), ("B", 20, 5)], [("C", 7), ("D", 4)]
    assert mixed_chunks(running, waiting, 9, 10, 9, 4) == [("A", 1), ("B", 9)]
    assert mixed_chunks(running, waiting, 9, 20, 9, 4) == [("A", 1), ("B", 15), ("C", 4)]
    assert mixed_chunks(running, waiting, 5, 20, 9, 4) == [("A", 1), ("B", 15)]  # C needs two
    assert mixed_chunks(running, waiting, 2, 20, 9, 4) == [("A", 1), ("B", 7)]
    assert mixed_chunks(running, waiting, 9, 30, 3, 4) == [("A", 1), ("B", 15), ("C", 7)]


def test_preemption_by_hand():
    running = [("A", 9, 8), ("B", 5, 4), ("C", 8, 6)]
    assert preempting(running, [("D", 1)], 0, 9, 9, 4) == ([("A", 1), ("B", 1)], ["C"])
    assert preempting(running, [("D", 1)], 1, 9, 9, 4) == ([("A", 1), ("B", 1)], ["C"])
    assert preempting(running, [("D", 1)], 2, 9, 9, 4) == ([("A", 1), ("B", 1), ("C", 2)], [])
    assert preempting(running, [("D", 1)], 3, 9, 9, 4).work[-1] == ("D", 1)
    assert preempting(running, [], 0, 0, 9, 4) == ([], [])
    assert preempting([("A", 5, 4)], [], 0, 9, 9, 4) == ([], ["A"])  # it is the last itself
    assert line_after(running, [("D", 3)], ["C", "B"]) == [("B", 5), ("C", 8), ("D", 3)]


def serve(requests, blocks, budget, most, block):
    """A server without a clock: who got how many tokens, and what happened in each step."""
    waiting, running, made, steps = [(i, p) for i, (p, _) in enumerate(requests)], [], {}, 0
    admitted, free = [], blocks
    while waiting or running:
        work, put_back = preempting(running, waiting, free, budget, most, block)
        assert work or put_back
        waiting = line_after(running, waiting, put_back)
        running = [r for r in running if r[0] not in put_back]
        for name, _ in work:
            if name not in [r[0] for r in running]:
                assert waiting[0][0] == name
                running.append((name, waiting.pop(0)[1], 0))
                admitted.append(name)
        done, after = dict(work), []
        for name, tokens, cached in running:
            cached += done.get(name, 0)
            if cached == tokens:
                made[name], tokens = made.get(name, 0) + 1, tokens + 1
            if made.get(name, 0) < requests[name][1]:
                after.append((name, tokens, cached))
        running, steps = after, steps + 1
        free = blocks - sum(blocks_for(cached, block) for _, _, cached in running)
        assert free >= 0 and len(running) <= most
        assert steps < 10_000
    return made, admitted


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=7),
    st.integers(6, 12),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_everybody_is_served_to_the_end_and_nobody_twice(requests, blocks, budget, most):
    made, admitted = serve(requests, blocks, budget, most, block=4)
    assert made == {i: output for i, (_, output) in enumerate(requests)}
    firsts = list(dict.fromkeys(admitted))
    assert firsts == sorted(firsts)  # first come, first served


def test_inputs_stay_as_they_were():
    running, waiting = [("A", 9, 8), ("B", 5, 4)], [("C", 7)]
    for schedule in (*ALL, lambda r, w, *rest: line_after(r, w, ["B"])):
        schedule(running, waiting, 0, 9, 9, 4)
        assert running == [("A", 9, 8), ("B", 5, 4)] and waiting == [("C", 7)]


@pytest.mark.parametrize("schedule", ALL)
def test_nothing_to_do(schedule):
    assert schedule([], [], 3, 3, 3, 4) == []
