"""How evenly experts are used, and what pushes a router there.

    f_i = share of the T k assignments that expert i gets          sum_i f_i = 1
    P_i = mean over tokens of softmax(s)_i                         sum_i P_i = 1
    balancing loss = E sum_i f_i P_i            1 where both are even
    z loss         = mean over tokens of (log sum_i exp s_i)^2     keeps logits small

f comes from a choice and has no gradient; P has one. So the loss lowers the probability of the
experts that got more than their share.

Sources: Fedus et al., "Switch" (2021), equations 4 to 6; Zoph et al., "ST-MoE" (2022),
equation 5. ``transformers`` sums f over the k choices, so its loss is k times this one.
"""

import torch
from torch import Tensor

from efflib.checks import expect_dims


def load(experts: Tensor, count: int) -> Tensor:
    """f: the share of all assignments experts [T, k] that each of `count` experts gets. [E]"""
    return torch.bincount(experts.flatten(), minlength=count).float() / experts.numel()


def balancing_loss(logits: Tensor, experts: Tensor) -> Tensor:
    """E sum f P of logits [T, E] and the experts [T, k] chosen by them; a scalar, 1 if even."""
    expect_dims("[T, E]", logits=logits)
    expect_dims("[T, k]", experts=experts)
    count = logits.shape[1]
    mean = logits.float().softmax(-1).mean(0)  # P, [E]
    return count * (load(experts, count) * mean).sum()


def z_loss(logits: Tensor) -> Tensor:
    """The mean square of the logits' log-sum-exp, of [T, E]; a scalar."""
    expect_dims("[T, E]", logits=logits)
    return logits.float().logsumexp(-1).square().mean()
