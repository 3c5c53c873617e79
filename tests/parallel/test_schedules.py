"""Pipeline schedules against the formulas, for all small sizes; plans against a search."""

import math

import pytest
import torch

from efflib.parallel import plans
from efflib.parallel.schedules import bubble, gpipe, live, one_f_one_b, start_times

SIZES = [(p, m) for p in range(1, 6) for m in range(1, 9)]


@pytest.mark.parametrize("stages, micro", SIZES)
@pytest.mark.parametrize("order", [gpipe, one_f_one_b])
def test_times_and_memory_are_those_of_the_formulas(order, stages, micro):
    orders = [order(s, stages, micro) for s in range(stages)]
    pieces = sorted((k, i) for k in "FB" for i in range(micro))
    assert all(sorted(own) == pieces for own in orders)
    starts = start_times(orders, 1.0, 2.0)
    end = max(s[-1] + 2.0 for s in starts)
    assert end == (micro + stages - 1) * 3.0
    assert math.isclose(bubble(stages, micro), 1 - micro * 3.0 / end)
    for s, own in enumerate(orders):
        assert live(own) == (micro if order is gpipe else min(micro, stages - s))


def test_a_schedule_that_cannot_go_on():
    with pytest.raises(ValueError, match="wait for ever"):
        start_times([[("B", 0), ("F", 0)]], 1.0, 1.0)
    with pytest.raises(ValueError, match="wait for ever"):
        start_times([[("F", 0), ("F", 1)], [("F", 1), ("F", 0), ("F", 2)]], 1.0, 1.0)


def test_the_fit_finds_the_line_and_stays_above_zero():
    sizes = torch.tensor([4, 400, 40_000, 4_000_000])
    alpha, beta = plans.fit(sizes, 1e-5 + 3e-9 * sizes.double())
    assert math.isclose(alpha, 1e-5, rel_tol=1e-9) and math.isclose(beta, 3e-9, rel_tol=1e-9)
    alpha, beta = plans.fit(torch.tensor([1, 1000]), torch.tensor([1e-9, 2e-3]))
    assert alpha == 0 and beta > 0
    alpha, beta = plans.fit(torch.tensor([1, 1000]), torch.tensor([2e-3, 1e-3]))
    assert alpha > 0 and beta == 0


def test_the_plan_follows_batch_and_network():
    job = plans.Job(32, 13.5e9, 0.0, 13.5e9, 8192.0, 3.35e12, 989e12, 5e-6, 1 / 450e9)
    assert plans.better_plan(job, 1, 4)[0] == "tensor"
    slow = job._replace(alpha=5e-5, beta=1 / 3e9)
    assert plans.better_plan(slow, 2048, 4)[0] == "pipeline"
    assert plans.better_plan(job, 7, 1)[0] == "tensor"
    with pytest.raises(ValueError, match="multiple"):
        plans.pipeline_step(job, 6, 2, 4)


def test_one_sequence_is_no_faster_in_a_pipeline():
    job = plans.Job(8, 1e9, 0.0, 1e9, 4096.0, 1e12, 1e15, 1e-6, 1e-9)
    alone = plans.tensor_step(job, 1, 1)
    assert plans.pipeline_step(job, 1, 4, 1) >= alone > plans.tensor_step(job, 1, 4)
