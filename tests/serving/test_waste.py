"""Waste on a trace: every row of the memory labelled one by one, and the lecture's orders of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.serving.contiguous import POLICIES, Arena, piece
from efflib.serving.waste import ContiguousMemory, PagedMemory
from efflib.traffic.server import Usage, mean_share, replay
from efflib.traffic.traces import CHAT, Request, draw_trace

LONGEST = 24
requests = st.builds(Request, st.integers(0, 9), st.integers(1, 10), st.integers(1, 14))
traces = st.lists(requests, min_size=1, max_size=8)


def labelled(rows, waits_for):
    """Usage from rows, each None or (request, "used" | "reserved" | "internal")."""
    kinds = [row[1] for row in rows if row is not None]
    gaps = rows.count(None)
    longest_gap = max(map(len, "".join("x" if r else "." for r in rows).split("x")))
    if waits_for is not None and waits_for > longest_gap and waits_for <= gaps:
        external = gaps
    else:
        external = 0
    counts = [kinds.count(kind) for kind in ("used", "reserved", "internal")]
    running = len({row[0] for row in rows if row is not None})
    return Usage(*counts, external, gaps - external, running)


def rows_of(i, request, n, length):
    kinds = ["used"] * n + ["reserved"] * (request.total - n)
    return [(i, kind) for kind in (kinds + ["internal"] * length)[:length]]


def slow_contiguous(trace, size, policy):
    """The same server on a list with an entry for each row."""
    rows, running, usage, waited, step = [None] * size, {}, [], [], 0
    waiting = sorted(range(len(trace)), key=lambda i: trace[i].arrival)
    while waiting or running:
        while waiting and trace[waiting[0]].arrival <= step:
            length = piece(trace[waiting[0]], policy, LONGEST)
            at = [s for s in range(size - length + 1) if rows[s : s + length] == [None] * length]
            if not at:
                break
            i = waiting.pop(0)
            running[i] = [at[0], length, trace[i].prompt]
            rows[at[0] : at[0] + length] = rows_of(i, trace[i], 0, length)
        for i, (start, length, n) in running.items():
            running[i][2] = n + 1
            rows[start : start + length] = rows_of(i, trace[i], n + 1, length)
        if running:
            head = waiting and trace[waiting[0]].arrival <= step
            wanted = piece(trace[waiting[0]], policy, LONGEST) if head else None
            usage.append(labelled(rows, wanted))
            waited.append(bool(head))
        for i in [i for i in running if running[i][2] == trace[i].total]:
            start, length, _ = running.pop(i)
            rows[start : start + length] = [None] * length
        step += 1
    return usage, waited, step


@given(traces, st.sampled_from(POLICIES), st.integers(26, 60))
@settings(max_examples=150)
def test_contiguous_waste_row_by_row(trace, policy, size):
    found = replay(trace, ContiguousMemory(size, policy, LONGEST))
    usage, waited, steps = slow_contiguous(trace, size, policy)
    assert (found.usage, found.waited, found.steps) == (usage, waited, steps)
    assert found.loaded == [u for u, w in zip(usage, waited, strict=True) if w]
    assert (found.preempted, found.computed_again) == (0, 0)
    for usage in found.usage:
        assert sum(usage[:5]) == size and min(usage) >= 0


@given(traces, st.integers(1, 8), st.integers(0, 20))
@settings(max_examples=150)
def test_paged_waste(trace, block_size, more):
    needed = max(-(-r.total // block_size) for r in trace)
    memory = PagedMemory((needed + more) * block_size + block_size - 1, block_size)
    found = replay(trace, memory)
    assert memory.size == (needed + more) * block_size
    for usage in found.usage:
        assert sum(usage[:5]) == memory.size and min(usage) >= 0 == usage.external
        assert usage.reserved + usage.internal <= usage.running * (block_size - 1)
    if block_size == 1:
        assert not any(usage.reserved + usage.internal for usage in found.usage)
    answers = sum(request.output for request in trace)
    assert sum(usage.running for usage in found.usage) == answers, "each token of an answer once"
    if needed + more >= sum(-(-r.total // block_size) for r in trace):
        assert found.preempted == 0


def test_paged_by_hand():
    """Blocks of 4, three of them: the second request has to go and come again."""
    found = replay([Request(0, 3, 5), Request(0, 3, 3)], PagedMemory(12, 4))
    assert found.usage[:3] == [
        Usage(8, 0, 0, 0, 4, 2),  # 4 + 4 tokens in a block each
        Usage(5, 3, 0, 0, 4, 1),  # the first took the last block, the second was put back
        Usage(6, 2, 0, 0, 4, 1),
    ]
    assert (found.preempted, found.computed_again) == (1, 4)
    assert found.loaded == found.usage[1:5], "until the first is done, the other waits"


def test_external_waste_needs_one_who_waits():
    trace = [Request(0, 2, 2), Request(0, 2, 6), Request(0, 2, 2), Request(1, 4, 4)]
    found = replay(trace, ContiguousMemory(16, "oracle", 99))
    # step 1: pieces of 4, 8, 4; they fill the arena, and the fourth waits for 8 rows
    assert found.usage[1] == Usage(12, 4, 0, 0, 0, 3)
    # both short ones are gone: gaps of 4 and 4, which are 8 together and not in one piece
    assert found.usage[2] == Usage(5, 3, 0, 8, 0, 1)


def test_policies_by_hand():
    request = Request(0, 100, 25)  # the example of the paper: 25 tokens of answer reserve 32
    assert [piece(request, policy, 2048) for policy in POLICIES] == [2048, 132, 125]
    assert [piece(Request(0, 1, n), "power2", 0) - 1 for n in (1, 2, 3, 64, 65)] == [
        1,
        2,
        4,
        64,
        128,
    ]


def test_the_order_of_the_four_on_a_long_trace():
    trace = draw_trace(150, *CHAT, per_step=0.5, seed=0)
    shares = [
        mean_share(replay(trace, memory).usage, memory.size)["used"]
        for memory in (
            *(ContiguousMemory(16 * 1024, policy, 2048) for policy in POLICIES),
            PagedMemory(16 * 1024, 16),
        )
    ]
    assert shares == sorted(shares)


def test_first_fit():
    arena = Arena(10)
    assert arena.place("a", 3) and arena.place("b", 3) and arena.place("c", 3)
    arena.free("b")
    assert arena.gaps() == [(3, 6), (9, 10)]
    assert not arena.place("d", 4) and arena.place("d", 1) and arena.pieces["d"] == (3, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: piece(Request(0, 1, 1), "most", 4),
        lambda: Arena(0),
        lambda: Arena(4).free("a"),
        lambda: Arena(4).place("a", 5),
        lambda: PagedMemory(16, 0),
        lambda: replay([Request(0, 9, 9)], PagedMemory(16, 4)),
        lambda: replay([Request(0, 1, 1)], ContiguousMemory(16, "maximum", 17)),
        lambda: mean_share([], 4),
    ],
)
def test_what_does_not_fit_is_named(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()
