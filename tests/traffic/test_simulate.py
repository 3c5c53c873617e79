"""The simulator: its clock against lab 0's roofline, conservation, gates, arrivals, metrics."""

import math
import time

import pytest

from efflib.models.cost import Shapes, step_cost, total
from efflib.serving import load, metrics
from efflib.serving.limits import least_seconds
from efflib.serving.schedulers import line_after, mixed_chunks, preempting, prefill_first
from efflib.traffic import arrivals
from efflib.traffic.simulate import (
    LLAMA_8B,
    Arrival,
    Limits,
    clock,
    counts,
    dynamic,
    simulate,
    static,
    step_seconds,
)
from efflib.traffic.traces import Lengths

LLAMA = Shapes(32, 4096, 32, 8, 128, 14336, 128256)


def unit(work):
    return 1.0


@pytest.mark.parametrize(
    ("batch", "new", "cached"), [(1, 1, 0), (64, 1, 900), (3, 700, 0), (2, 9, 33)]
)
def test_a_step_of_equal_requests_is_the_roofline_of_lab_0(batch, new, cached):
    right = least_seconds(total(step_cost(LLAMA, new, cached, batch)), LLAMA_8B)
    assert step_seconds(LLAMA_8B, [(0, new, cached)] * batch) == pytest.approx(right, rel=1e-12)
    slow = LLAMA_8B._replace(fixed=0.25)
    assert step_seconds(slow, [(0, new, cached)] * batch) == pytest.approx(right + 0.25)


def test_the_chart_of_the_lecture():
    """One token in each row and step: S1 and S3 end at T6, S4 at T7, S2 at T8; S5, S6, S7 come.

    (With prompts kept apart S2 and S4 pause while they come.)
    """
    trace = [Arrival(0, 1, n) for n in (6, 8, 6, 7, 2, 2, 1)]
    limits = Limits(99, 4, 16, 99)
    run = simulate(trace, prefill_first, unit, limits)
    spans = {i: (times[0], times[-1]) for i, (_, times) in enumerate(run.log)}
    assert spans == {0: (1, 6), 1: (1, 10), 2: (1, 6), 3: (1, 8), 4: (7, 8), 5: (7, 8), 6: (9, 9)}
    run = simulate(trace, mixed_chunks, unit, limits)  # nobody pauses for S5, S6
    spans = {i: (times[0], times[-1]) for i, (_, times) in enumerate(run.log)}
    assert spans == {0: (1, 6), 1: (1, 8), 2: (1, 6), 3: (1, 7), 4: (7, 8), 5: (7, 8), 6: (8, 8)}
    run = simulate(trace, prefill_first, unit, limits, static(4))
    assert [times[0] for _, times in run.log] == [1, 1, 1, 1, 9, 9, 9]


def test_every_token_is_made_once_and_each_step_takes_its_time():
    trace = arrivals.poisson(50, arrivals.draw_lengths(200))
    for schedule, gate, back in (
        (prefill_first, None, None),
        (mixed_chunks, None, None),
        (preempting, None, line_after),
        (prefill_first, static(16), None),
        (prefill_first, dynamic(16, 0.1), None),
    ):
        limits = Limits(4096, 16, 16, 400 if back else 30_000)
        run = simulate(trace, schedule, clock(LLAMA_8B), limits, gate, back)
        assert [len(times) for _, times in run.log] == [r.output for r in trace]
        computed = sum(n for step in run.steps for _, n, _ in step.work)
        once = sum(r.prompt + r.output - 1 for r in trace)
        assert computed == once + run.recomputed and (run.recomputed > 0) == (back is not None)
        assert run.steps[-1].free == limits.blocks and run.steps[-1].waiting == 0
        for a, b in zip(run.steps, run.steps[1:], strict=False):
            assert a.start + a.seconds <= b.start + 1e-12
        assert counts(run)["largest step"] <= 4096


def test_the_gates():
    trace = [Arrival(float(i), 1, 3) for i in (0, 1, 2, 9)]
    run = simulate(trace, prefill_first, unit, gate=static(2))
    assert [times[0] for _, times in run.log] == [2, 2, 10, 10]
    run = simulate(trace, prefill_first, unit, gate=dynamic(2, 0.5))
    assert [times[0] for _, times in run.log] == [1.5, 4.5, 4.5, 10]
    run = simulate(trace, prefill_first, unit, gate=dynamic(9, 0.0))
    assert [times[0] for _, times in run.log] == [1, 4, 4, 10]


def test_equal_lengths_all_there_continuous_wins_nothing():
    trace = [Arrival(0.0, 100, 30)] * 64
    limits = Limits(10_000, 16)
    still, moving = (
        simulate(trace, prefill_first, clock(LLAMA_8B), limits, gate) for gate in (static(16), None)
    )
    assert still.log == moving.log


def test_what_never_fits_is_said():
    with pytest.raises(ValueError, match="nothing more can run"):
        simulate([Arrival(0, 50, 1)], mixed_chunks, unit, Limits(9, 9, 4, 5))
    with pytest.raises(ValueError, match="budget"):
        simulate([Arrival(0, 50, 1)], mixed_chunks, unit, Limits(0))


def test_ten_thousand_requests_in_five_seconds():
    trace = arrivals.poisson(40, arrivals.draw_lengths(10_000))
    begin = time.process_time()
    simulate(trace, mixed_chunks, clock(LLAMA_8B), Limits(512))
    assert time.process_time() - begin < 15  # measured 2 to 3; three times that on a busy machine


def test_arrivals(tmp_path):
    lengths = arrivals.draw_lengths(2000, seed=3)
    slow, fast = (arrivals.poisson(rate, lengths, seed=1) for rate in (1, 4))
    assert [r.at for r in slow] == pytest.approx([4 * r.at for r in fast])
    assert [r[1:] for r in slow] == lengths == [r[1:] for r in arrivals.evenly(3, lengths)]
    gaps = [b.at - a.at for a, b in zip(slow, slow[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    square = sum((g - mean) ** 2 for g in gaps) / len(gaps)
    assert mean == pytest.approx(1, rel=0.1) and math.sqrt(square) == pytest.approx(1, rel=0.15)
    burst = arrivals.bursts(4, lengths, 8)
    assert len({r.at for r in burst}) == 250 and burst[-1].at == pytest.approx(500)
    assert {len({r.at for r in burst[i : i + 8]}) for i in range(0, 2000, 8)} == {1}
    assert set(arrivals.draw_lengths(9, Lengths(7, 0, 9), Lengths(3, 0, 9))) == {(7, 3)}
    path = tmp_path / "own.csv"
    arrivals.write_arrivals(path, slow)
    assert arrivals.read_arrivals(path) == slow
    for text in (
        "a,b\n",
        "arrival,prompt,output\n",
        "arrival,prompt,output\n1,0,2\n",
        "arrival,prompt,output\nx,1,2\n",
        "arrival,prompt,output\n1\n",
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match="own.csv"):
            arrivals.read_arrivals(path)
    for rate in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="rate"):
            arrivals.poisson(rate, lengths)


def test_littles_law_and_the_metrics_of_lab_0():
    run = simulate(
        arrivals.poisson(30, arrivals.draw_lengths(150)), mixed_chunks, clock(LLAMA_8B), Limits(512)
    )
    events = sorted([(at, 1) for at, _ in run.log] + [(t[-1], -1) for _, t in run.log])
    area, now, count = 0.0, events[0][0], 0
    for at, change in events:
        area, now, count = area + count * (at - now), at, count + change
    assert load.inside(run.log) == pytest.approx(area / run.seconds)
    log = [metrics.Served(at, tuple(t)) for at, t in run.log]
    tpot = load.tails(run.log)["tpot"][0]
    right = metrics.goodput(log, 0.02, tpot)
    assert load.attained(run.log, 0.02, tpot) * len(log) / run.seconds == pytest.approx(right)
    assert 0 < load.attained(run.log, 0.02, tpot) < 1
    assert load.tails([(0.0, [1.0])]) == {"ttft": (1.0, 1.0), "tpot": None}


@pytest.mark.parametrize(
    ("points", "right"),
    [
        ([(1, 1.0), (2, 0.8)], 1.5),
        ([(2, 0.8), (1, 1.0)], 1.5),
        ([(1, 0.5), (2, 1.0)], 0.0),
        ([(1, 0.9), (2, 0.95)], 2),
        ([(1, 0.9), (2, 0.5)], 1),
        ([(1, 1.0), (2, 0.7), (3, 1.0)], 1 + 1 / 3),
    ],
)
def test_the_knee(points, right):
    assert load.knee(points, 0.9) == pytest.approx(right)
