"""The story of rounding weights at the reduced setting: bits, granularity, k-means."""

import pytest

from efflib.zoo.phenomena import quantization
from efflib.zoo.phenomena.story import QUICK

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    return quantization.measure(QUICK, seed=0)


@pytest.mark.parametrize("name", quantization.GRANULARITIES)
def test_fewer_bits_cost_more(figures, name):
    row = [figures[f"linear {bits} {name}"] for bits in (8, 4, 3, 2)]
    assert row[0] / figures["fp"] < 1.05
    assert row[1] > row[0] and row[2] > row[1] and row[3] > row[2]


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_finer_scales_cost_less(figures, bits):
    tensor, channel, group = (figures[f"linear {bits} {n}"] for n in quantization.GRANULARITIES)
    assert group < channel < tensor


@pytest.mark.parametrize("bits", [3, 2])
def test_a_codebook_is_better_than_a_grid_of_the_same_size(figures, bits):
    assert figures[f"kmeans {bits} tensor"] < figures[f"linear {bits} tensor"]
