"""A learned sink: every head has a number b that stands for a key without a value.

    p_j = exp(s_j) / (exp(b) + sum_k exp(s_k))

b = -inf is the plain softmax, b = 0 the softmax with an extra zero (`zero_sink`).  The part of 1
that the keys do not get, exp(b) / (...), is what the head spends on nothing.  A head that should
rest raises b and need not look for a token whose value does no harm.

    dL/db = - sum_j p_j dL/dp_j (1 - sum_j p_j)              through the shared denominator

Source: OpenAI's gpt-oss (2025), where every head has such a "sink"; Xiao et al. 2023
(arXiv:2309.17453), section 3.3, for the extra zero and for a learned begin token.
Where implementations differ: gpt-oss puts b into the row of scores and drops its column after the
softmax; here the row is shifted by its largest entry, b included, which is the same.
"""

import torch
from torch import Tensor, nn

from efflib.checks import expect_whole


def sink_softmax(scores: Tensor, bias: Tensor) -> Tensor:
    """exp(s_j) / (exp(b) + sum_k exp(s_k)); scores [B, H, T, S], bias [H]. [B, H, T, S]

    Scores may be -inf (masked), a whole row too: its probabilities are 0.  Raises ValueError unless
    there is one bias for each head.
    """
    if scores.ndim != 4 or bias.shape != scores.shape[1:2]:
        raise ValueError(
            f"scores must be [B, H, T, S] and bias [H], got {tuple(scores.shape)} and "
            f"{tuple(bias.shape)}"
        )
    b = bias.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]


class SinkBias(nn.Module):
    """An attention function for `Llama.set_attention`, with a bias of its own for every head."""

    def __init__(self, heads: int, start: float = 0.0) -> None:
        super().__init__()
        expect_whole(1, heads=heads)
        self.bias = nn.Parameter(torch.full((heads,), float(start)))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """q [B, H, T, d]; k, v [B, Hkv, S, d]; mask bool, True where a key is seen."""
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, T, S]
        return sink_softmax(scores.masked_fill(~mask, float("-inf")), self.bias) @ v
