"""Two limits and where they change places, against a search and against the roofline of lab 3."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from efflib.models.cost import Part, Shapes, decode_cost, prefill_cost, step_cost, total
from efflib.serving import limits
from efflib.serving.decoder import MODELS
from efflib.serving.roofline import RTX_4090, Machine, decode
from efflib.serving.roofline import ridge_batch as with_norms

rates = st.floats(1e3, 1e16)
machines = st.builds(Machine, rates, rates)
counts = st.floats(0, 1e15)
parts = st.builds(Part, counts, counts, counts)
SMALL = Shapes(2, 64, 8, 2, 8, 96, 100)


@given(parts, machines)
def test_the_roof_and_the_time_say_the_same(part, machine):
    found = limits.intensity(part.flops, part.moved)
    seconds = limits.least_seconds(part, machine)
    assume(part.flops > 1e-3 and part.moved > 1e-3)
    assert seconds == pytest.approx(part.flops / limits.attainable(found, machine), rel=1e-9)
    longer = part.moved / machine.bandwidth > part.flops / machine.peak
    assert limits.bound(part, machine) == ("memory" if longer else "compute")


@given(st.lists(parts, max_size=5), machines)
def test_in_turn_is_never_less_than_together(several, machine):
    in_turn = limits.seconds_in_turn(several, machine)
    together = total(dict(enumerate(several))) if several else Part(0, 0.0, 0.0)
    assert in_turn >= limits.least_seconds(together, machine) * (1 - 1e-9)
    assert in_turn == pytest.approx(sum(limits.least_seconds(p, machine) for p in several))


def test_the_corners_of_intensity():
    assert limits.intensity(3, 0) == math.inf and limits.intensity(0, 0) == 0.0
    assert limits.attainable(math.inf, RTX_4090) == RTX_4090.peak
    assert limits.attainable(limits.ridge(RTX_4090), RTX_4090) == RTX_4090.peak
    assert limits.attainable(0, RTX_4090) == 0


@pytest.mark.parametrize("cached", [0, 100, 300])
@pytest.mark.parametrize(("bits", "kv_bits"), [(16, 16), (4, 8)])
def test_at_the_ridge_both_take_the_same_time(cached, bits, kv_bits):
    m, machine = MODELS["llama-3.1-8b"], Machine(3.35e12, 989.4e12)
    batch = limits.ridge_batch(m, cached, machine, bits, kv_bits)
    below, above = (
        total(step_cost(m, 1, cached, b, bits, kv_bits))
        for b in (math.floor(batch), math.floor(batch) + 1)
    )
    assert limits.bound(below, machine) == "memory" and limits.bound(above, machine) == "compute"


def test_behind_the_last_context_no_batch_computes():
    m, machine = MODELS["llama-3.1-8b"], Machine(3.35e12, 989.4e12)
    last = limits.ridge_context(m, machine)
    assert math.isfinite(limits.ridge_batch(m, math.floor(last), machine))
    assert limits.ridge_batch(m, math.floor(last) + 1, machine) == math.inf
    assert limits.bound(decode_cost(m, math.floor(last) + 1, 10**9), machine) == "memory"


@given(machines, st.integers(0, 5000))
def test_ridge_batch_is_finite_before_the_context_and_inf_behind(machine, cached):
    last = limits.ridge_context(SMALL, machine)
    assume(abs(cached - last) > 1e-6 * (1 + last) if last < math.inf else True)
    found = limits.ridge_batch(SMALL, cached, machine)
    first_is_beyond = last == 0 and limits.ridge_batch(SMALL, 0, machine) == math.inf
    assert math.isinf(found) == (cached > last or first_is_beyond)


def test_with_one_key_head_and_a_slow_processor_every_context_computes():
    slow = Machine(1e12, 1e12)  # a ridge of 1 FLOP a byte; a token that is seen takes 2 H / Hkv
    assert limits.ridge_context(SMALL, slow) == math.inf
    assert limits.ridge_context(Shapes(1, 4, 1, 1, 4, 4, 4), Machine(1.0, 1e9)) == 0.0


@pytest.mark.parametrize("cached", [1, 2048])
def test_the_roofline_of_lab_3_has_the_same_ridge_but_for_norms(cached):
    m = MODELS["llama-2-7b"]
    found = limits.ridge_batch(m, cached - 1, RTX_4090)
    assert found == pytest.approx(with_norms(decode(m, cached), RTX_4090), rel=1e-3)


def test_prefill_is_bound_by_computing_and_decoding_by_bytes():
    m = MODELS["llama-2-7b"]
    assert limits.bound(prefill_cost(m, 2048), RTX_4090) == "compute"
    assert limits.bound(decode_cost(m, 2048), RTX_4090) == "memory"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: limits.intensity(-1, 1), "flops=-1"),
        (lambda: limits.intensity(math.nan, 1), "flops=nan"),
        (lambda: limits.ridge(Machine(0, 1)), "bandwidth=0"),
        (lambda: limits.attainable(-1, RTX_4090), "flops_per_byte=-1"),
        (lambda: limits.least_seconds(Part(1, 1, 0), Machine(1, -1)), "peak=-1"),
    ],
)
def test_bad_numbers_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
