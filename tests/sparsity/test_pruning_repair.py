"""Pruning with repair, for any choice of what goes; SparseGPT's own tests are test_sparsegpt.py."""

import pytest
import torch

from efflib.hessian import gram
from efflib.repair import prune_and_repair

X = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
W = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def first_half(scores):
    return torch.arange(scores.shape[1]).expand(scores.shape) >= scores.shape[1] // 2


def test_what_is_not_chosen_goes_and_the_rest_makes_it_good():
    new = prune_and_repair(W, gram(X), first_half)
    assert not new[:, :4].any() and new[:, 4:].all() and new.dtype == W.dtype
    zeroed = W.clone()
    zeroed[:, :4] = 0
    least = torch.linalg.lstsq(X[:, 4:].double(), X.double() @ W.double().T).solution.T
    errors = [(X.double() @ (W - v).double().T).norm() for v in (new, zeroed)]
    best = (X.double() @ W.double().T - X[:, 4:].double() @ least.T).norm()
    assert best <= errors[0] <= 1.05 * best < errors[1]  # damping costs a little


def test_so_many_columns_are_chosen_at_a_time():
    seen = []

    def choose(scores):
        seen.append(tuple(scores.shape))
        return torch.ones_like(scores, dtype=torch.bool)

    new = prune_and_repair(W, gram(X), choose, columns=2, block=6)
    assert seen == [(3, 2)] * 4
    assert torch.allclose(new, W)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="need h"):
        prune_and_repair(W, gram(X)[:4, :4], first_half)
    with pytest.raises(ValueError, match="multiple of columns"):
        prune_and_repair(W, gram(X), first_half, columns=3, block=8)
