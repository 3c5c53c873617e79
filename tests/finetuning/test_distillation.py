"""Distillation: divergences against float64, MiniLLM's gradient against every text there is."""

import itertools
import math

import pytest
import torch
from small_llama import llama

from efflib.decoding.speculative import acceptance_probability
from efflib.finetuning.distillation import (
    distance,
    distill,
    feature_loss,
    forward_kl,
    hard_labels,
    importance,
    long_loss,
    own_text,
    reverse_kl,
    single_loss,
)
from efflib.zoo.distillation import distillation_loss
from efflib.zoo.tokenizer import BEGIN_ID


def logits(seed, *shape):
    return 2 * torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def test_divergences_by_hand():
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])
    ln2 = math.log(2)
    assert forward_kl(p.log(), q.log()).item() == pytest.approx(0.25 * ln2)
    assert reverse_kl(p.log(), q.log() + 5).item() == pytest.approx(0.25 * ln2)
    assert distance(p.log(), q.log()).item() == pytest.approx(0.25)
    assert hard_labels(torch.tensor(1), q.log()).item() == pytest.approx(ln2)
    never = torch.tensor([0.0, -math.inf, 0.0])  # the teacher never says 1
    assert forward_kl(never, q.log()).isfinite() and reverse_kl(never, q.log()) == math.inf
    assert reverse_kl(never, never).item() == 0 and forward_kl(p.log(), never) == math.inf


def test_gradients_in_closed_form():
    a, b = logits(0, 4, 5, 7), logits(1, 4, 5, 7).requires_grad_()
    p, q = a.softmax(-1), b.detach().softmax(-1)
    (found,) = torch.autograd.grad(forward_kl(a, b).sum(), b)
    torch.testing.assert_close(found, q - p)
    (found,) = torch.autograd.grad(reverse_kl(a, b).sum(), b)
    r = q.log() - p.log()
    torch.testing.assert_close(found, q * (r - (q * r).sum(-1, keepdim=True)))


def test_the_distance_is_what_speculation_rejects():
    a, b = logits(2, 6, 9), logits(3, 6, 9)
    p, q = a.softmax(-1), b.softmax(-1)
    torch.testing.assert_close(1 - distance(a, b), (q * acceptance_probability(p, q)).sum(-1))


def small_llama(seed):
    """A model with opinions: logits of size 1."""
    model, generator = llama(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.copy_(0.3 * torch.randn(p.shape, generator=generator))
    return model


class Bigram(torch.nn.Module):
    """Logits [B, T, V] that depend on the token before: a model whose texts can all be listed."""

    def __init__(self, seed, v=3):
        super().__init__()
        self.table = torch.nn.Parameter(logits(seed, v, v))

    def forward(self, ids):
        return self.table[ids]


def every_text(v, t):
    """All texts of t tokens behind a token 0, [v^t, 1 + t]."""
    return torch.tensor([(0, *text) for text in itertools.product(range(v), repeat=t)])


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_two_parts_are_the_gradient_of_the_divergence(share):
    student, teacher = Bigram(0), Bigram(1)
    ids = every_text(3, 4)
    a, b = teacher(ids[:, :-1]).detach(), student(ids[:, :-1])
    log_p, log_q = (
        x.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0] for x in (a, b)
    )  # [81, 4]
    whole = (log_q.sum(1).exp() * (log_q - log_p).sum(1)).sum()
    (right,) = torch.autograd.grad(whole, student.table, retain_graph=True)
    # Each text as often as it is drawn from the mixture, times its weight: an exact mean.
    mixed = (share * log_p.exp() + (1 - share) * log_q.exp()).detach().log()
    drawn = mixed.sum(1).exp()
    torch.testing.assert_close(drawn.sum().item(), 1.0)
    found = 0
    for i in range(len(ids)):
        x, y, text = a[i : i + 1], b[i : i + 1], ids[i : i + 1, 1:]
        w = importance(x, y, text, share).prod()  # of the whole text: unbiased
        parts = single_loss(x, y) + long_loss(x, y, text)
        (g,) = torch.autograd.grad(parts, student.table, retain_graph=True)
        found = found + drawn[i] * w.detach() * g
    torch.testing.assert_close(found, right)


def test_returns_are_of_what_follows():
    a, b = logits(4, 1, 3, 5), logits(5, 1, 3, 5).requires_grad_()
    ids = torch.tensor([[1, 4, 0]])
    log_p, log_q = (x.log_softmax(-1)[0, torch.arange(3), ids[0]] for x in (a, b))
    r = (log_p - log_q).detach()
    right = -(log_q[0] * (r[1] + r[2]) + log_q[1] * r[2])
    torch.testing.assert_close(long_loss(a, b, ids), right)
    right = -(log_q[0] * (r[1] + r[2]) / 2 + log_q[1] * r[2])
    torch.testing.assert_close(long_loss(a, b, ids, normalized=True), right)


def test_importance_is_bounded():
    a, b = logits(6, 2, 5, 9), logits(7, 2, 5, 9)
    ids = torch.randint(9, (2, 5))
    w = importance(a, b, ids, 0.2)
    p, q = (x.softmax(-1).gather(-1, ids[..., None])[..., 0] for x in (a, b))
    torch.testing.assert_close(w, q / (0.2 * p + 0.8 * q))
    assert (w <= 1.25).all() and torch.equal(importance(a, b, ids, 0.0), torch.ones_like(w))
    with pytest.raises(ValueError):
        importance(a, b, ids, 1.0)


def test_features():
    t, s, m = logits(8, 2, 3, 6), logits(9, 2, 3, 4), logits(10, 6, 4).requires_grad_()
    right = ((s @ m.detach().T - t) ** 2).sum() / t.numel()
    loss = feature_loss(t, s, m)
    torch.testing.assert_close(loss.detach(), right)
    loss.backward()
    assert m.grad.abs().max() > 0
    with pytest.raises(ValueError):
        feature_loss(t, s)
    assert feature_loss(t, t).item() == 0


def test_the_zoo_s_loss_is_the_forward_divergence():
    student, teacher = small_llama(1), small_llama(2)
    ids = torch.randint(20, (2, 9))
    with torch.no_grad():
        right = forward_kl(teacher(ids[:, :-1]), student(ids[:, :-1])).mean()
        found = distillation_loss(student, teacher, "cpu")(ids)
    torch.testing.assert_close(found, right, rtol=0.05, atol=1e-3)  # logits in bfloat16


def test_own_text_begins_with_luck_and_goes_on_likely():
    model = small_llama(3)
    ids = own_text(model, 40, 12, seed=1, greedy=3)
    assert ids.shape == (40, 13) and (ids[:, 0] == BEGIN_ID).all()
    assert len(set(ids[:, 1].tolist())) > 5
    with torch.no_grad():
        likely = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]
    assert likely[:, 1:4].all() and not likely[:, 4:].all()
    assert torch.equal(own_text(model, 40, 12, seed=1, greedy=3), ids)
    assert own_text(model, 2, 1, seed=0).shape == (2, 2)
    assert own_text(model, 2, 3, seed=0).shape == (2, 4)


@pytest.mark.parametrize("divergence", [forward_kl, reverse_kl, distance, None])
def test_a_student_comes_closer(divergence):
    student, teacher = small_llama(1), small_llama(2)
    start = {n: p.clone() for n, p in student.state_dict().items()}
    text = own_text(teacher, 60, 16, seed=2).split(4)
    made, losses = distill(student, teacher, text, 15, 1e-2, divergence)
    assert len(losses) == 15 and losses[-1] < losses[0] and not made.training
    assert all(torch.equal(p, start[n]) for n, p in student.state_dict().items())


def test_on_policy_the_student_of_the_step_writes():
    student, teacher = small_llama(1), small_llama(2)
    seen = []

    def write(model, step):
        seen.append((step, model.training, model.lm_head.weight.detach().clone()))
        return own_text(model, 2, 6, seed=step)

    distill(student, teacher, write, 3, 1e-2, reverse_kl)
    assert [s[:2] for s in seen] == [(0, False), (1, False), (2, False)]
    assert not torch.equal(seen[0][2], seen[1][2])


def test_what_is_refused():
    student = small_llama(1)
    for steps, lr in ((0, 1e-3), (1, 0.0), (1, math.inf)):
        with pytest.raises(ValueError):
            distill(student, student, [], steps, lr)
    for loss in (forward_kl, reverse_kl, distance):
        with pytest.raises(ValueError):
            loss(torch.zeros(2, 3), torch.zeros(2, 4))
