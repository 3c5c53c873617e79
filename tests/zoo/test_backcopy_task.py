"""The backcopy task against its definition, the probe and a short training."""

import math

import pytest
import torch

from efflib.attention.maps import begin_share
from efflib.zoo.backcopy import (
    BEGIN,
    best_losses,
    excess_loss,
    make_task,
    one_head_model,
    sample,
    train,
)


def test_samples_follow_the_rule():
    task = make_task(seed=1)
    ids = sample(task, 50, 40, torch.Generator().manual_seed(2))
    assert (ids[:, 0] == BEGIN).all() and (ids[:, 1:] != BEGIN).all()
    after = task.is_trigger[ids[:, 1:-1]]  # position t is a trigger, t >= 1
    assert after.any() and torch.equal(ids[:, 2:][after], ids[:, :-2][after])
    assert not (after[:, 1:] & after[:, :-1]).any()


def test_chain_steps_follow_the_bigrams():
    task = make_task(vocab=6, triggers=1, seed=3)
    ids = sample(task, 4000, 12, torch.Generator().manual_seed(4))
    last, new = ids[:, :-1].flatten(), ids[:, 1:].flatten()
    for token in range(2, 6):
        seen = torch.bincount(new[last == token], minlength=6).float()
        expected = seen.sum() * task.bigram[token]
        cells = expected > 0
        chi2 = ((seen - expected)[cells] ** 2 / expected[cells]).sum()
        # 4 degrees of freedom, 1 - 1e-7 quantile, for each of four tokens: a seed is another stream
        # of numbers on another vendor's CPU
        assert chi2 < 38.2


def test_the_best_losses_are_those_of_the_chain_and_the_rule():
    task = make_task(seed=5)
    ids = sample(task, 3, 20, torch.Generator().manual_seed(6))
    best = best_losses(task, ids)
    for row, losses in zip(ids.tolist(), best, strict=True):
        for t in range(20):
            p = 1.0 if task.is_trigger[row[t]] else task.bigram[row[t], row[t + 1]].item()
            assert losses[t].item() == pytest.approx(-math.log(p), abs=1e-5)
    uniform = excess_loss(task, torch.zeros(3, 20, 64), ids)
    torch.testing.assert_close(uniform, math.log(64) - best)


def test_the_first_query_sees_the_begin_token_only_and_the_probe_restores():
    model, task = one_head_model(), make_task()
    ids = sample(task, 2, 10, torch.Generator().manual_seed(7))
    before = model.model.layers[0].self_attn.attention
    share = begin_share(model, ids)
    assert share.shape == ids.shape and torch.equal(share[:, 0], torch.ones(2))
    torch.testing.assert_close(share[:, -1], torch.full((2,), 1 / 11), rtol=0.05, atol=0)
    assert model.model.layers[0].self_attn.attention is before


def test_a_short_training_learns():
    model, task = one_head_model(), make_task()
    losses = [loss for _, loss in train(model, task, 60)]
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])  # seen: 0.61, 0.73, 0.68


def test_training_without_the_begin_token_never_shows_it():
    for begin in (True, False):
        model, task = one_head_model(), make_task()
        before = model.model.embed_tokens.weight.detach().clone()
        for _ in train(model, task, 2, begin=begin):
            pass
        moved = (model.model.embed_tokens.weight != before).any(1)
        assert moved[1:].any() and bool(moved[BEGIN]) == begin


def test_what_does_not_fit_is_named():
    task, generator = make_task(), torch.Generator()
    with pytest.raises(ValueError, match="length=-1 must be"):
        sample(task, 2, -1, generator)
    with pytest.raises(ValueError, match="n=-2 must be"):
        sample(task, -2, 1, generator)
    ids = sample(task, 2, 5, generator)
    with pytest.raises(ValueError, match=r"logits \(2, 6, 64\) are not of ids \(2, 6\)"):
        excess_loss(task, torch.zeros(2, 6, 64), ids)
    with pytest.raises(ValueError, match="steps=-1 must be"):
        next(train(one_head_model(), task, -1))


def test_too_many_triggers_are_refused():
    with pytest.raises(ValueError, match="triggers=62"):
        make_task(64, 62)
