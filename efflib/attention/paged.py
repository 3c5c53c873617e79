"""Attention over keys and values in blocks, block by block, with an online softmax.

    for each block of the table, with scores s_j = q k_j / sqrt(d) of its rows:
        m'     = max(m, max_j s_j)                          the largest score so far
        total' = total e^(m - m') + sum_j e^(s_j - m')
        acc'   = acc   e^(m - m') + sum_j e^(s_j - m') v_j
    o = acc / total,   lse = m + log total

What has been summed up is scaled to the new maximum, so the result is that of one softmax over all
keys, whatever the block size: blocks are never put side by side, and rows of the last block beyond
the length are not read.  `efflib.kernels.paged_attention` is this as a Triton kernel, many blocks
at a time; `efflib.kernels.split_attention` merges parts in the same way.
Sources: Milakov and Gimelshein 2018 (arXiv:1805.02867); Kwon et al. 2023, section 4.1, equation 4.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_within


def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, table: Sequence[int], length: int, scale: float
) -> tuple[Tensor, Tensor]:
    """(o [H, d], lse [H]) float32 of one query q [H, d] over the first `length` keys of a table."""
    block_size, group = k.shape[1], q.shape[0] // k.shape[2]
    m = torch.full(q.shape[:1], -math.inf, device=q.device)  # [H]
    total, acc = torch.zeros_like(m), torch.zeros_like(q, dtype=torch.float32)
    for start in range(0, length, block_size):
        rows = slice(0, min(block_size, length - start))
        block = int(table[start // block_size])
        k_block, v_block = (
            t[block, rows].float().repeat_interleave(group, dim=1).transpose(0, 1) for t in (k, v)
        )  # [H, rows, d]
        s = (k_block @ q.float()[..., None]).squeeze(-1) * scale  # [H, rows]
        largest = torch.maximum(m, s.amax(-1))
        p, keep = torch.exp(s - largest[:, None]), torch.exp(m - largest)
        total = total * keep + p.sum(-1)
        acc = acc * keep[:, None] + (p[:, None] @ v_block).squeeze(1)
        m = largest
    return acc / total.clamp(min=1.0)[:, None], m + total.log()


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """One query per head and sequence: (o [B, H, d] in q's dtype, lse [B, H] float32).

    q [B, H, d]; k, v [blocks, block_size, Hkv, d], H a multiple of Hkv; block_table [B, most] and
    lengths [B] of integers.  A sequence of length 0 has o = 0 and lse = -inf.
    Raises ValueError for what does not fit; entries of the table beyond a length are not read.
    """
    expect_dims("[B, H, d]", q=q)
    expect_dims("[blocks, block_size, Hkv, d]", k=k, v=v)
    B, H, d = q.shape
    if k.shape != v.shape or k.shape[3] != d or H % k.shape[2]:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit")
    if block_table.ndim != 2 or block_table.shape[0] != B or lengths.shape != (B,):
        shapes = f"block_table {tuple(block_table.shape)}, lengths {tuple(lengths.shape)}"
        raise ValueError(f"need block_table [B, most] and lengths [B] for B = {B}: {shapes}")
    expect_within(block_table.shape[1] * k.shape[1] + 1, lengths=lengths)
    scale = 1 / math.sqrt(d) if scale is None else scale
    parts = []
    for row, table, n in zip(q, block_table, lengths.tolist(), strict=True):
        used = table[: -(-n // k.shape[1])]
        expect_within(k.shape[0], block_table=used)
        parts.append(attend_blocks(row, k, v, used.tolist(), n, scale))
    o, lse = (torch.stack(part) for part in zip(*parts, strict=True))
    return o.to(q.dtype), lse
