"""Windowed attention and the backward pass in plain PyTorch: the twins of the Triton kernels.

The same blocks in the same order, so that a kernel can be debugged against them value by value.
`windowed_attention` and `attention_backward` explain the algorithms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from efflib.kernels.flash_attention import LOG2_E, alignment_shift, check
from efflib.kernels.tiled_attention import _attend_block
from efflib.kernels.windowed_attention import check_window


def visible_keys(
    rows: Tensor, n: Tensor, shift: int, causal: str | None, window: int | None, sinks: int
) -> Tensor:
    """[BM, BN] bool: which keys n [BN] the queries rows [BM] see."""
    i, j = rows[:, None] + shift, n[None, :]
    seen = (j <= i) if causal else torch.ones(len(rows), len(n), dtype=torch.bool)
    return seen if window is None else seen & ((j > i - window) | (j < sinks))


def key_blocks(
    rows: Tensor, S: int, shift: int, causal: str | None, window: int | None, sinks: int, size: int
) -> list[Tensor]:
    """Blocks of keys that queries rows [BM] may see: those of the sinks, then the others."""
    stop = S if causal is None else min(S, max(0, int(rows[-1]) + 1 + shift))
    start = 0 if window is None else min(S, max(0, int(rows[0]) + shift + 1 - window))
    ranges = (0, min(sinks, start)), (start, stop)
    return [
        torch.arange(first, min(first + size, end))
        for begin, end in ranges
        for first in range(begin, end, size)
    ]


def tiled_windowed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    sinks: int = 0,
    causal: str = "bottom_right",
    scale: float | None = None,
    block_m: int = 64,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """What `windowed_attention` computes: (o [B, H, T, d], lse [B, H, T] float32)."""
    check(q, k, v, block_m, block_n)
    check_window(causal, window, sinks)
    (_, H, T, d), S = q.shape, k.shape[2]
    masks = alignment_shift(T, S, causal), causal, window, sinks
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    k, v = (t.repeat_interleave(H // t.shape[1], dim=1) for t in (k, v))  # [B, H, S, d]
    outputs, sums = [], []
    for rows in torch.arange(T).split(block_m):
        q_block = q[:, :, rows]  # [B, H, BM, d]
        total = torch.zeros(q_block.shape[:3])
        state = torch.zeros(q_block.shape), total, total - math.inf
        for n in key_blocks(rows, S, *masks, block_n):
            seen = visible_keys(rows, n, *masks)
            state = _attend_block(q_block, k[:, :, n], v[:, :, n], seen, state, scale_log2)
        acc, total, m = state
        outputs.append((acc / torch.where(total == 0, 1.0, total)[..., None]).to(q.dtype))
        sums.append((m + torch.log2(total)) / LOG2_E)
    return torch.cat(outputs, dim=2), torch.cat(sums, dim=2)


def _score_gradients(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, seen: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(p, ds) [..., BM, BN] float32 of one tile.

    q, do: [..., BM, d]; k, v: [..., BN, d]; lse, delta: [..., BM]; seen: [BM, BN].
    """
    s = (q.float() @ k.float().mT * scale).masked_fill(~seen, -math.inf)
    p = torch.exp(s - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return p, p * (do.float() @ v.float().mT - delta[..., None])


def tiled_attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    dlse: Tensor | None = None,
    causal: str | None = None,
    scale: float | None = None,
    window: int | None = None,
    sinks: int = 0,
    block_m: int = 64,
    block_n: int = 64,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `attention_backward` computes: (dq, dk, dv) in the shapes and the dtype of q, k, v."""
    check(q, k, v, block_m, block_n)
    check_window(causal, window, sinks)
    (B, H, T, d), (_, Hkv, S, _) = q.shape, k.shape
    masks = alignment_shift(T, S, causal), causal, window, sinks
    scale = 1 / math.sqrt(d) if scale is None else scale
    delta = (o.float() * do.float()).sum(-1) - (0 if dlse is None else dlse)  # [B, H, T]
    k_wide, v_wide = (t.repeat_interleave(H // Hkv, dim=1) for t in (k, v))  # [B, H, S, d]
    dq, dk, dv = (torch.zeros(B, H, n, d) for n in (T, S, S))
    for rows in torch.arange(T).split(block_m):
        q_block, do_block = q[:, :, rows], do[:, :, rows]
        for n in key_blocks(rows, S, *masks, block_n):
            seen = visible_keys(rows, n, *masks)
            k_block = k_wide[:, :, n]
            p, ds = _score_gradients(q_block, k_block, v_wide[:, :, n], do_block,
                                     lse[:, :, rows], delta[:, :, rows], seen, scale)  # fmt: skip
            p, ds = p.to(q.dtype).float(), ds.to(q.dtype).float()  # as for tensor cores
            dq[:, :, rows] += ds @ k_block.float() * scale
            dk[:, :, n] += ds.mT @ q_block.float() * scale
            dv[:, :, n] += p.mT @ do_block.float()
    dk, dv = (t.view(B, Hkv, H // Hkv, S, d).sum(2) for t in (dk, dv))
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
