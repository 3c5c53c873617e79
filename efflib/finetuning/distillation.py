"""Distillation: a student learns what a teacher says, and on whose text.

p is the teacher's distribution of the next token, q the student's, both [..., V] from logits.

    forward KL   KL(p || q) = sum_v p (ln p - ln q)     gradient to the logits  q - p
    reverse KL   KL(q || p) = sum_v q (ln q - ln p)     gradient  q (ln q - ln p - KL(q || p))
    distance     1 - sum_v min(p, q)                    what speculative decoding rejects

Forward KL is large where the teacher has mass and the student none: the student covers every mode.
Reverse KL is large where the student has mass and the teacher none: it keeps to one.  Forward KL
differs from the cross-entropy with the teacher's distribution by the entropy of p, which has no
gradient.  Hinton et al. 2015 (arXiv:1503.02531) soften both with a temperature and multiply by its
square; here it is 1.

Over whole texts y that the student writes (MiniLLM, Gu et al. 2024, arXiv:2306.08543, section 2.2):

    r_t = ln p(y_t) - ln q(y_t)            grad KL(q || p) = single + long
    single = grad sum_t KL(q_t || p_t)     exact for every prefix that was written
    long   = -E sum_t (sum_{t' > t} r_t') grad ln q(y_t)

The long part is a policy gradient: a token is to blame for what follows it.  `long_loss` can
divide each return by its remaining length; MiniLLM does, against its bias to short texts, and then
it is no longer the gradient of the divergence.  Its text may come from m = a p + (1 - a) q,
weighted by w_t = q / m (`importance`).  Where MiniLLM's code differs from its paper: there a return
includes its own step, is whitened, and clipped as PPO does.  None of that here.

Sequence level (Kim and Rush 2016, arXiv:1606.07947): plain cross-entropy on text that the teacher
wrote: `efflib.zoo.distillation.written`.  LLM-QAT (Liu et al. 2023, arXiv:2305.17888): a model in
few bits learns from its own float self on text that this one wrote from nothing: `own_text`.
"""

import copy
import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.decoding.sampling import GREEDY, Sampling, generate
from efflib.finetuning.training import CLIP, rate
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import BEGIN_ID

Divergence = Callable[[Tensor, Tensor], Tensor]  # (teacher's logits, student's) [..., V] -> [...]


def _both(teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    """(ln p, ln q), at least float32; the teacher gets no gradient."""
    if teacher.shape != student.shape or teacher.ndim == 0 or teacher.shape[-1] == 0:
        raise ValueError(
            f"teacher {tuple(teacher.shape)} and student {tuple(student.shape)} need one [..., V]"
        )
    log_p, log_q = (
        x.to(torch.promote_types(x.dtype, torch.float32)).log_softmax(-1)
        for x in (teacher.detach(), student)
    )
    return log_p, log_q


def _weighted(weight: Tensor, log_a: Tensor, log_b: Tensor) -> Tensor:
    """sum_v weight (ln a - ln b) [...], where 0 (ln 0 - x) counts 0."""
    term = weight * (log_a - log_b)
    return torch.where(weight > 0, term, 0.0).sum(-1)


def forward_kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(p || q) of logits [..., V], in nats. [...]"""
    log_p, log_q = _both(teacher, student)
    return _weighted(log_p.exp(), log_p, log_q)


def reverse_kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(q || p) of logits [..., V], in nats; infinite where only the teacher says 0. [...]"""
    log_p, log_q = _both(teacher, student)
    return _weighted(log_q.exp(), log_q, log_p)


def distance(teacher: Tensor, student: Tensor) -> Tensor:
    """1 - sum_v min(p, q) of logits [..., V]: the chance that a proposal is rejected. [...]"""
    log_p, log_q = _both(teacher, student)
    return 1 - torch.minimum(log_p, log_q).exp().sum(-1)


def hard_labels(labels: Tensor, student: Tensor) -> Tensor:
    """-ln q(label) of labels [...] and logits [..., V]: the control of distillation. [...]"""
    log_q = student.to(torch.promote_types(student.dtype, torch.float32)).log_softmax(-1)
    return -log_q.gather(-1, labels[..., None])[..., 0]


def feature_loss(teacher: Tensor, student: Tensor, project: Tensor | None = None) -> Tensor:
    """Mean squared distance of features [..., D_t] and [..., D_s] project^T.  Scalar.

    project [D_t, D_s]: trained beside the student; needed where widths differ (FitNets, Romero et
    al. 2015).
    """
    moved = student if project is None else student @ project.T
    if moved.shape != teacher.shape:
        raise ValueError(f"teacher {tuple(teacher.shape)} and student {tuple(moved.shape)} differ")
    return F.mse_loss(moved, teacher.detach())


def importance(teacher: Tensor, student: Tensor, ids: Tensor, share: float) -> Tensor:
    """w = q / (share p + (1 - share) q) of tokens ids [...] drawn from that mixture. [...]

    teacher, student: logits [..., V].  A mixture's weight is at most 1 / (1 - share).
    """
    if not 0 <= share < 1:
        raise ValueError(f"{share=} must be in [0, 1)")
    log_p, log_q = (x.gather(-1, ids[..., None])[..., 0] for x in _both(teacher, student))
    return 1 / (share * (log_p - log_q).exp() + 1 - share)


def long_loss(teacher: Tensor, student: Tensor, ids: Tensor, normalized: bool = False) -> Tensor:
    """What has the gradient of the long part for texts ids [B, T] that the student drew.  Scalar.

    Logits [B, T, V] are those that predict ids.  -sum_t R_t ln q(y_t) on the mean over the texts,
    R_t the sum of r over the tokens behind t, without gradient; normalized: their mean.
    """
    expect_dims("[B, T]", ids=ids)
    log_p, log_q = (x.gather(-1, ids[..., None])[..., 0] for x in _both(teacher, student))
    r = (log_p - log_q).detach()  # [B, T]
    behind = r.flip(1).cumsum(1).flip(1) - r  # sum over t' > t
    if normalized:
        left = torch.arange(ids.shape[1] - 1, -1, -1, device=ids.device)
        behind = behind / left.clamp(min=1)
    return -(behind * log_q).sum(1).mean()


def single_loss(teacher: Tensor, student: Tensor) -> Tensor:
    """sum_t KL(q_t || p_t) on the mean over texts, logits [B, T, V]: the single part.  Scalar."""
    expect_dims("[B, T, V]", teacher=teacher, student=student)
    return reverse_kl(teacher, student).sum(1).mean()


@torch.no_grad()
def own_text(model: Llama, rows: int, length: int, seed: int, greedy: int = 4) -> Tensor:
    """ids [rows, 1 + length] that the model writes from nothing, begin token first (LLM-QAT).

    The first token of a text is drawn evenly from the vocabulary, the next `greedy` are the
    likeliest (what begins with luck shall go on sensibly), the rest is drawn at temperature 1.
    """
    expect_whole(1, rows=rows, length=length)
    expect_whole(greedy=greedy)
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(model.config.vocab_size, (rows, 1), generator=generator)
    ids = torch.cat([torch.full_like(first, BEGIN_ID), first], dim=1)
    sure = min(greedy, length - 1)
    if sure:
        ids = generate(model, ids, sure, GREEDY)
    if left := length - 1 - sure:
        ids = generate(model, ids, left, Sampling(), generator)
    return ids


def distill(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[Tensor] | Callable[[nn.Module, int], Tensor],
    steps: int,
    lr: float,
    divergence: Divergence | None = forward_kl,
) -> tuple[nn.Module, list[float]]:
    """(trained copy of the student in eval mode, loss before every step in nats).

    batches: ids [B, 1 + T] for each step, or a function of the student as it is and the step that
    gives them: on-policy, where the student writes.  divergence None: cross-entropy with the text.
    AdamW on what is not frozen, by the rate of `training`.  Raises ValueError for no step, or a
    rate that is not positive.
    """
    expect_whole(1, steps=steps)
    if not 0 < lr < math.inf:
        raise ValueError(f"{lr=} must be positive and finite")
    student = copy.deepcopy(student)
    trained = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    given, losses = None if callable(batches) else iter(batches), []
    for step in range(steps):
        ids = batches(student.eval(), step) if given is None else next(given)
        logits = student.train()(ids[:, :-1])  # [B, T, V]
        if divergence is None:
            loss = hard_labels(ids[:, 1:], logits).mean()
        else:
            with torch.no_grad():
                wanted = teacher(ids[:, :-1])
            loss = divergence(wanted, logits).mean()
        optimizer.param_groups[0]["lr"] = lr * rate(step, steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        losses.append(loss.item())
    return student.eval(), losses
