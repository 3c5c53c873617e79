"""FlashAttention forward in plain PyTorch: the twin of the Triton kernel, line by line.

The same blocks in the same order, so that a kernel can be debugged against it value by value.
`flash_attention` explains the algorithm.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from efflib.kernels.flash_attention import LOG2_E, alignment_shift, check

State = tuple[Tensor, Tensor, Tensor]  # acc, total, m


def _attend_block(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, state: State, scale: float
) -> State:
    """One block of keys.  q: [..., BM, d]; k, v: [..., BN, d]; seen: [BM, BN].

    state: (acc [..., BM, d], total [..., BM], m [..., BM]), float32.
    """
    acc, total, m = state
    s = q.float() @ k.float().mT * scale  # [..., BM, BN], in units of log2
    s = s.masked_fill(~seen, -math.inf)
    m_new = torch.maximum(m, s.amax(-1))
    m_safe = torch.where(m_new == -math.inf, 0.0, m_new)
    p = torch.exp2(s - m_safe[..., None])
    correction = torch.exp2(m - m_safe)
    total = total * correction + p.sum(-1)
    acc = acc * correction[..., None] + p.to(v.dtype).float() @ v.float()
    return acc, total, m_new


def tiled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None = None,
    scale: float | None = None,
    block_m: int = 64,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """What `flash_attention` computes: (o [B, H, T, d], lse [B, H, T] float32)."""
    check(q, k, v, block_m, block_n)
    (_, H, T, d), S = q.shape, k.shape[2]
    shift = alignment_shift(T, S, causal)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    k, v = (t.repeat_interleave(H // t.shape[1], dim=1) for t in (k, v))  # [B, H, S, d]
    outputs, sums = [], []
    for first in range(0, T, block_m):
        q_block = q[:, :, first : first + block_m]  # [B, H, BM, d]
        rows = torch.arange(first, first + q_block.shape[2])[:, None]
        stop = S if causal is None else min(S, max(0, int(rows[-1]) + 1 + shift))
        state = (
            torch.zeros(q_block.shape),
            torch.zeros(q_block.shape[:3]),
            torch.full(q_block.shape[:3], -math.inf),
        )
        for start in range(0, stop, block_n):
            keys = slice(start, min(start + block_n, S))
            n = torch.arange(keys.start, keys.stop)
            seen = n <= rows + shift if causal else torch.ones(len(rows), len(n), dtype=torch.bool)
            state = _attend_block(q_block, k[:, :, keys], v[:, :, keys], seen, state, scale_log2)
        acc, total, m = state
        outputs.append((acc / torch.where(total == 0, 1.0, total)[..., None]).to(q.dtype))
        sums.append((m + torch.log2(total)) * math.log(2))
    return torch.cat(outputs, dim=2), torch.cat(sums, dim=2)
