"""Skipped neurons: exact where only silent ones are skipped; rows not read; counted bytes."""

import pytest
import torch

from efflib.sparsity.contextual import (
    active_neurons,
    bytes_read,
    chosen_neurons,
    fit_predictor,
    predictor_loss,
    recall,
    skipping_mlp,
)

D, N, T = 8, 20, 30


def mlp(seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = ((T, D), (N, D), (N, D), (D, N))
    return [torch.randn(s, generator=g, dtype=torch.float64) for s in shapes]


def dense(x, gate, up, down):
    return ((x @ gate.T).relu() * (x @ up.T)) @ down.T


def test_silent_neurons_may_be_skipped_and_no_others():
    x, gate, up, down = mlp()
    active = active_neurons(x, gate)
    assert 0.2 < active.double().mean() < 0.8
    y = dense(x, gate, up, down)
    torch.testing.assert_close(skipping_mlp(x, gate, up, down, active), y)
    fewer = active.clone()
    fewer[3, active[3].nonzero()[0]] = False
    rows = (skipping_mlp(x, gate, up, down, fewer) - y).abs().sum(1) > 1e-9
    assert rows.nonzero().flatten().tolist() == [3]


def test_rows_that_nobody_chose_are_not_read():
    x, gate, up, down = mlp()
    chosen = torch.rand(T, N) < 0.5
    chosen[:, [2, 7]] = False
    right = skipping_mlp(x, gate, up, down, chosen)
    for w in (gate, up, down.T):
        w[[2, 7]] = torch.nan
    torch.testing.assert_close(skipping_mlp(x, gate, up, down, chosen), right)
    nobody = torch.zeros(T, N, dtype=torch.bool)
    assert not skipping_mlp(x, gate, up, down, nobody).any()


def test_bytes_are_those_of_the_union():
    chosen = torch.zeros(3, N, dtype=torch.bool)
    chosen[0, :4] = True
    chosen[1, 2:6] = True
    assert bytes_read(chosen[:1], D) == 2 * 3 * D * 4
    assert bytes_read(chosen, D, number=4, predictor=10) == 4 * (3 * D * 6 + 10)
    assert bytes_read(chosen[2:], D) == 0


def test_recall_and_choice():
    chosen = chosen_neurons(torch.tensor([[0.1, 3.0, -1.0, 2.0]]), 2)
    assert chosen.tolist() == [[False, True, False, True]]
    active = torch.tensor([[True, True, False, False]])
    assert recall(chosen, active) == 0.5 and recall(chosen, active & False) == 1.0
    assert (
        chosen_neurons(torch.randn(3, 4), 9).all()
        and not chosen_neurons(torch.randn(3, 4), 0).any()
    )
    with pytest.raises(ValueError, match="budget"):
        chosen_neurons(torch.randn(3, 4), -1)


def test_a_predictor_learns_and_a_fixed_choice_does_not():
    x, gate, _, _ = (t.float() for t in mlp())
    x = torch.randn(2000, D, generator=torch.Generator().manual_seed(1))
    active = active_neurons(x, gate)
    budget = int(active.float().sum(1).mean())
    made = fit_predictor(x[:1500], active[:1500], rank=D)
    found = recall(chosen_neurons(made.scores(x[1500:]), budget), active[1500:])
    best = recall(chosen_neurons((x @ gate.T)[1500:], budget), active[1500:])
    often = active[:1500].float().mean(0).expand(500, -1)
    fixed = recall(chosen_neurons(often, budget), active[1500:])
    assert found > 0.98 * best > 0.8 > 0.6 > fixed  # a product of rank D can be the gate itself
    assert ((made.scores(x[1500:]) > 0) == active[1500:]).float().mean() > 0.9
    assert made.numbers() == 2 * D * D + D * (N - D) + N
    same = fit_predictor(x[:1500], active[:1500], rank=D)
    assert all(torch.equal(a, b) for a, b in zip(made, same, strict=True))


def test_the_loss_weighs_silent_neurons_by_the_share():
    scores = torch.tensor([[2.0, -1.0, 0.5, 0.0]])
    active = torch.tensor([[True, False, False, False]])
    p = scores.sigmoid()
    each = -torch.where(active, p.log(), (1 - p).log())
    right = (each * torch.where(active, 1.0, 0.255)).mean()
    torch.testing.assert_close(predictor_loss(scores, active), right)
