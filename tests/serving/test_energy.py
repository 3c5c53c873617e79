"""Joules by formula: linear in each price, shared by a batch, and below what a card may draw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efflib.models.cost import Shapes, decode_cost, prefill_cost
from efflib.serving import energy as e
from efflib.serving.decoder import MODELS
from efflib.serving.limits import least_seconds
from efflib.serving.roofline import RTX_4090, Machine

SMALL = Shapes(2, 64, 8, 2, 8, 96, 100)
price = st.floats(0, 1e3)
prices = st.builds(e.Prices, price, price, price)


def test_by_hand():
    machine, paid = Machine(10.0, 1e9), e.Prices(2.0, 3.0, 5.0)
    found = e.sentence_joules(SMALL, 4, 3, machine, paid)
    steps = [prefill_cost(SMALL, 4), decode_cost(SMALL, 4), decode_cost(SMALL, 5)]
    each = [2 * s.flops + 3 * s.moved + 5 * s.moved / 10 for s in steps]
    assert found.prefill == pytest.approx(each[0])
    assert found.decoding == pytest.approx(each[1] + each[2])
    assert found.sum == pytest.approx(sum(each))


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 50), prices)
def test_prices_add_up(prompt, new, batch, paid):
    alone = [e.Prices(paid.flop, 0), e.Prices(0, paid.byte), e.Prices(0, 0, paid.watts)]
    whole, *three = (
        e.sentence_joules(SMALL, prompt, new, RTX_4090, p, batch).sum for p in (paid, *alone)
    )
    assert whole == pytest.approx(sum(three))


def test_a_batch_shares_the_weights_and_nothing_else():
    paid = e.Prices(1.0, 1.0)
    one, many = (e.sentence_joules(SMALL, 5, 9, RTX_4090, paid, b).sum for b in (1, 10))
    read = sum(part.weights for part in e.passes(SMALL, 5, 9))
    assert one - many == pytest.approx(read * 9 / 10)


def test_one_token_is_the_prompts():
    found = e.sentence_joules(SMALL, 5, 1, RTX_4090, e.HBM2)
    assert found.decoding == 0 < found.prefill
    assert len(list(e.passes(SMALL, 5, 4))) == 4


def test_full_power_is_watts_times_the_least_time():
    m, h100 = MODELS["llama-2-7b"], Machine(3.35e12, 989.4e12)
    found = e.by_power(m, 512, 20, h100, 700)
    least = sum(least_seconds(part, h100) for part in e.passes(m, 512, 20))
    assert found.sum == pytest.approx(700 * least)
    assert e.sentence_joules(m, 512, 20, h100, e.HBM2).sum < found.sum


def test_the_prices_of_the_docstring():
    assert e.FP32_FLOP == pytest.approx(2.3e-12) and e.FP16_FLOP == pytest.approx(0.75e-12)
    assert pytest.approx((162.5e-12, 31.2e-12)) == (e.DRAM_BYTE, e.HBM2_BYTE)


def test_bad_arguments_are_named():
    for name in ("prompt", "new", "batch"):
        arguments = {"prompt": 1, "new": 1, "batch": 1, name: 0}
        with pytest.raises(ValueError, match=f"{name}=0"):
            e.sentence_joules(SMALL, machine=RTX_4090, prices=e.HBM2, **arguments)
    with pytest.raises(ValueError, match="flop=-1"):
        e.sentence_joules(SMALL, 1, 1, RTX_4090, e.Prices(-1, 0))
