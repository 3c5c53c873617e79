"""Two pools: a queue, a link and a batch, against a clock that ticks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.serving.pools import decode_pool, hand_over, prefill_pool

small = st.integers(0, 12)


@given(st.lists(st.tuples(small, st.integers(1, 6)), max_size=8), st.integers(1, 3))
def test_prefill_tick_by_tick(jobs, workers):
    arrivals, seconds = sorted(a for a, _ in jobs), [s for _, s in jobs]
    ends, busy, line, now = [None] * len(jobs), [], [], 0
    while None in ends:
        busy = [(end, i) for end, i in busy if end > now]
        line += [i for i, a in enumerate(arrivals) if a == now]
        while line and len(busy) < workers:
            i = line.pop(0)
            ends[i] = now + seconds[i]
            busy.append((ends[i], i))
        now += 1
    assert prefill_pool(arrivals, seconds, workers) == ends


@given(st.lists(st.tuples(small, st.integers(1, 6)), max_size=8))
def test_the_link_is_a_queue_of_one(jobs):
    ends, sizes = [a for a, _ in jobs], [s for _, s in jobs]
    order = sorted(range(len(jobs)), key=lambda i: ends[i])
    crossed = prefill_pool(sorted(ends), [sizes[i] / 2 for i in order], 1)
    assert hand_over(ends, sizes, 2) == [crossed[order.index(i)] for i in range(len(jobs))]


@settings(deadline=None)
@given(
    st.lists(st.tuples(small, st.integers(1, 9), st.integers(0, 5)), max_size=7), st.integers(1, 3)
)
def test_decoding_tick_by_tick(jobs, most):
    ready, cached, left = (
        (list(column) for column in zip(*jobs, strict=True)) if jobs else ([],) * 3
    )
    seen = []

    def step(rows):
        seen.append(list(rows))
        return 1 + sum(rows) % 3

    times = decode_pool(ready, cached, left, most, step)
    assert [len(t) for t in times] == left
    now, running, made, steps = 0, [], [0] * len(jobs), []
    order = sorted(range(len(jobs)), key=lambda i: ready[i])
    while any(m < n for m, n in zip(made, left, strict=True)):
        for i in order:
            if len(running) < most and ready[i] <= now and i not in running and made[i] < left[i]:
                running.append(i)
        if not running:
            now += 1
            continue
        rows = [cached[i] + made[i] for i in running]
        steps.append(rows)
        now += 1 + sum(rows) % 3
        for i in running:
            assert times[i][made[i]] == now
            made[i] += 1
        running = [i for i in running if made[i] < left[i]]
    assert seen == steps
