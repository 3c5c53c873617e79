"""FlashDecoding and paged attention in plain PyTorch: the twins of the Triton kernels.

The same parts of the keys, in the same order, merged by the same formula, so that a kernel can be
debugged against them part by part.  `flash_decoding` and `paged_attention` explain the algorithms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from efflib.kernels.flash_decoding import check_decoding


def attention_part(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """(o [B, H, d], lse [B, H]) float32 over the keys given: q [B, H, d], k, v [B, H, n, d].

    No keys, n = 0: o = 0 and lse = -inf.
    """
    s = (q.float()[:, :, None] @ k.float().mT).squeeze(2) * scale  # [B, H, n]
    lse = s.logsumexp(-1)
    p = torch.exp(s - lse[..., None])
    return (p[:, :, None] @ v.float()).squeeze(2), lse


def merge(parts: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Parts [..., splits, d] and their lse [..., splits] -> (o [..., d], lse [...]) of all keys.

        lse = log sum_s exp(lse_s),   o = sum_s exp(lse_s - lse) o_s

    Order and grouping do not matter: merging is associative.  Parts without keys have lse -inf.
    """
    lse = lses.logsumexp(-1)
    safe = torch.where(lse == -math.inf, 0.0, lse)  # -inf - (-inf) would be NaN
    weights = torch.exp(lses - safe[..., None])
    return (parts * weights[..., None]).sum(-2), lse


def split_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    splits: int = 1,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """What `flash_decoding` computes: (o [B, H, d] in q's dtype, lse [B, H] float32)."""
    check_decoding(q, k, v, 1, block_n)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))  # [B, H, S, d]
    S = k.shape[2]
    blocks = math.ceil(S / block_n)
    per_split = math.ceil(blocks / splits) * block_n
    keys = [slice(start, start + per_split) for start in range(0, S, per_split)]
    parts = [attention_part(q, k[:, :, part], v[:, :, part], scale) for part in keys]
    o, lse = (torch.stack(x, dim=2) for x in zip(*parts, strict=True))
    o, lse = merge(o, lse)
    return o.to(q.dtype), lse


def gather_pages(pages: Tensor, block_table: Tensor, length: int) -> Tensor:
    """The first `length` rows of one sequence as [1, Hkv, length, d].

    pages: [pages, page_size, Hkv, d]; block_table: [max_pages], the pages of the sequence in order.
    """
    used = -(-length // pages.shape[1])
    rows = pages[block_table[:used].long()].flatten(0, 1)[:length]  # [length, Hkv, d]
    return rows.transpose(0, 1)[None]
