"""How evenly experts are used, and what pushes a router there.

    f_i = share of the T k assignments that expert i gets          sum_i f_i = 1
    P_i = mean over tokens of softmax(s)_i                         sum_i P_i = 1
    balancing loss = E sum_i f_i P_i            1 where f or P is even
    z loss         = mean over tokens of (log sum_i exp s_i)^2     keeps logits small
    bias           b_i += speed sign(1 / E - f_i)                  no loss at all (DeepSeek-V3)

f comes from a choice and has no gradient; P has one.  So the loss lowers the probability of the
experts that got more than their share.  If P were f, E sum f^2 >= 1 would be least where all is
even; it is not, and a router that chooses by a hair has less than 1 with uneven loads.  Of two
experts and k = 1, let a share a of the tokens have (1/2, 1/2), by a hair for the first, and the
others (0, 1): f = (a, 1 - a), P = (a / 2, 1 - a / 2), and 2 sum f P = 2 a^2 - 3 a + 2 is least at
a = 3/4, where it is 7/8.

Sources: Fedus et al., "Switch" (2021), equations 4 to 6; Zoph et al., "ST-MoE" (2022),
equation 5; Wang et al., "Auxiliary-Loss-Free Load Balancing" (2024), algorithm 1.
``transformers`` sums f over the k choices, so its loss is k times this one.
"""

import torch
from torch import Tensor

from efflib.checks import expect_dims
from efflib.moe.router import expect_logits


def load(experts: Tensor, count: int, real: Tensor | None = None) -> Tensor:
    """f: the share of all assignments experts [T, k] that each of `count` experts gets. [E]

    real: [T] bool, False for padding, which is not counted.  Without any token, zeros.
    """
    if real is not None:
        experts = experts[real]
    counts = torch.bincount(experts.flatten(), minlength=count).float()
    return counts / max(1, experts.numel())


def balancing_loss(logits: Tensor, experts: Tensor, real: Tensor | None = None) -> Tensor:
    """E sum f P of logits [T, E] and the experts [T, k] chosen by them; a scalar, 1 if even.

    real: [T] bool, False for padding.  0 without any token.
    """
    expect_logits(logits)
    if experts.shape[:1] != logits.shape[:1]:
        raise ValueError(f"{len(experts)} tokens have experts, {len(logits)} have logits")
    if real is not None:
        logits, experts = logits[real], experts[real]
    count = logits.shape[1]
    mean = logits.float().softmax(-1).sum(0) / max(1, len(logits))  # P, [E]
    return count * (load(experts, count) * mean).sum()


def z_loss(logits: Tensor) -> Tensor:
    """The mean square of the logits' log-sum-exp, of [T, E]; a scalar."""
    expect_dims("[T, E]", logits=logits)
    return logits.float().logsumexp(-1).square().mean()


def moved_bias(bias: Tensor, share: Tensor, speed: float) -> Tensor:
    """The bias [E] after a step in which the experts got the shares [E]: up where too few came."""
    return bias + speed * torch.sign(1 / len(share) - share)
