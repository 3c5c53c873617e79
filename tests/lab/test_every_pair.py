"""Any two values of two dimensions meet in some case."""

import itertools

import pytest
import torch

from efflib.lab.cases import every_pair


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sizes", [(2, 3), (4, 4, 4), (1, 5, 2, 7), (4,) * 7])
def test_any_two_values_meet(sizes):
    dimensions = [[f"{d}.{i}" for i in range(n)] for d, n in enumerate(sizes)]
    for seed in range(3):
        cases = every_pair(rng(seed), *dimensions)
        met = {pair for case in cases for pair in itertools.combinations(case, 2)}
        wanted = {
            pair
            for one, other in itertools.combinations(dimensions, 2)
            for pair in itertools.product(one, other)
        }
        assert wanted <= met
        assert all(len(case) == len(sizes) for case in cases)


def test_few_cases_do():
    assert len(every_pair(rng(), *[range(4)] * 7)) <= 32  # 16 at least, of 16,384


def test_the_draw_is_that_of_the_seed():
    assert every_pair(rng(1), "ab", "cd", "ef") == every_pair(rng(1), "ab", "cd", "ef")
    assert every_pair(rng(1), "ab", "cd", "ef") != every_pair(rng(2), "ab", "cd", "ef")
