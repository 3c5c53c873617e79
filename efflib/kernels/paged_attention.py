"""Paged attention: decode attention over a cache that lies in pages, found by a block table.

    key j of sequence b is row  j % page_size  of page  table[b, j // page_size]

A cache of one tensor [B, Hkv, S, d] has to be as long as the longest sequence may become.  In pages
of fixed size a sequence takes what it has, at most page_size - 1 rows more, and sequences that
begin alike may share pages.  Attention itself does not change: the kernel computes where a key lies
instead of knowing it, and the rest is `flash_decoding`: splits of the keys, GQA packed, merged by
lse.  Ragged lengths: each sequence is split by its own length; a split without a block gets no key,
o = 0 and lse = -inf, and vanishes in the merge.  So does a whole sequence of length 0.

    extra bytes: a 4-byte entry of the table for each key, beside 2 d elements:
    1/128 of the cache for d = 128 in 16 bits, and neighbours share the entry, so a cache line

Pages of 8 to 128 rows.  Large ones waste rows, small ones scatter reads: the rows of a page are one
run of page_size d elements per head only in the layout [pages, Hkv, page_size, d].  Below, strides
are free and the layout [pages, page_size, Hkv, d] is that of FlashAttention and vLLM, where a new
token is one run and a row of d elements, 256 bytes for d = 128, is enough for full sectors.

Where well-known implementations differ
- vLLM calls a page a block; FlashAttention asks for page_size % 256 == 0 in version 2 (any in 3).
- Keys of vLLM's first CUDA kernel were interleaved, [pages, Hkv, d / x, page_size, x], for 16-byte
  reads of threads; tl.dot needs no such layout.
- Entries of the table past the end of a sequence are never read here, and may hold anything.
Sources: Kwon et al. 2023 (arXiv:2309.06180), section 4.1; layout: flash_attn_with_kvcache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import (
    LOG2_E,
    SMALLEST_BLOCK,
    attend_scores,
    check_device,
    check_offsets,
    in_head,
)
from efflib.kernels.flash_decoding import (
    MAX_SPLITS,
    check_decoding,
    choose_splits,
    empty_parts,
    merge_parts,
    sm_count,
    store_part,
)

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

PAGE_SIZES = (8, 16, 32, 64, 128)


@triton.jit
def paged_decode_kernel(
    Q, K, V, Table, Lengths, Part, PartLSE, batch_q, head_q,
    page_k, row_k, head_k, page_v, row_v, head_v, batch_t, HKV, GROUP, SPLITS, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """A split of the keys of one sequence, for one key head.  Grid: (SPLITS, B Hkv)."""
    b = (tl.program_id(1) // HKV).to(tl.int64)
    head = (tl.program_id(1) % HKV).to(tl.int64)
    split = tl.program_id(0)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    on = g < GROUP
    rows = Q + b * batch_q + (head * GROUP + g) * head_q  # [BG]
    inside = in_head(on[:, None], d[None, :], HEAD, D)
    q = tl.load(rows[:, None] + d[None, :], mask=inside, other=0.0)
    K += head * head_k
    V += head * head_v

    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    length = tl.load(Lengths + b)
    per_split = tl.cdiv(tl.cdiv(length, BN), SPLITS) * BN  # of this sequence
    start = split * per_split
    stop = tl.minimum(start + per_split, length)
    for first in tl.range(start, stop, BN):
        n = first + tl.arange(0, BN)
        seen = n < stop
        page = tl.load(Table + b * batch_t + n // PAGE, mask=seen, other=0).to(tl.int64)  # [BN]
        at_k = page * page_k + n % PAGE * row_k
        at_v = page * page_v + n % PAGE * row_v
        k = tl.load(K + at_k[None, :] + d[:, None],
                    mask=in_head(seen[None, :], d[:, None], HEAD, D), other=0.0)  # fmt: skip
        v = tl.load(V + at_v[:, None] + d[None, :],
                    mask=in_head(seen[:, None], d[None, :], HEAD, D), other=0.0)  # fmt: skip
        s = tl.dot(q, k, input_precision="ieee") * scale_log2  # [BG, BN], in units of log2
        s = tl.where(seen[None, :], s, float("-inf"))
        acc, total, m = attend_scores(acc, total, m, s, v)
    row = ((b * HKV + head) * GROUP + g) * SPLITS + split
    store_part(Part, PartLSE, row, acc, total, m, on, HEAD, D)


def check_table(q: Tensor, k: Tensor, block_table: Tensor, lengths: Tensor) -> None:
    """Raises ValueError unless the table [B, max_pages] and lengths [B] fit, without reading them.

    Reading them would wait for the GPU; entries that are no page are read out of bounds.
    """
    B = q.shape[0]
    if block_table.ndim != 2 or lengths.shape != (B,) or block_table.shape[0] != B:
        shapes = f"block_table {tuple(block_table.shape)}, lengths {tuple(lengths.shape)}"
        raise ValueError(f"need block_table [B, max_pages] and lengths [B] for B = {B}: {shapes}")
    if block_table.dtype != torch.int32 or lengths.dtype != torch.int32:
        found = f"{block_table.dtype} and {lengths.dtype}"
        raise ValueError(f"block_table and lengths must be int32, got {found}")
    if block_table.stride(1) != 1 or lengths.stride(0) != 1:
        raise ValueError("block_table and lengths must be contiguous in their last dimension")
    if k.shape[1] not in PAGE_SIZES:
        raise ValueError(f"page_size must be one of {PAGE_SIZES}, got {k.shape[1]}")


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
    splits: int | None = None,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """Attention of one query per head and sequence: o [B, H, d] in q's dtype, lse [B, H] float32.

    q: [B, H, d]; k, v: [pages, page_size, Hkv, d] with H a multiple of Hkv (query head h uses
    h // (H/Hkv)); fp16, bf16 or fp32, d a multiple of 16, page_size in PAGE_SIZES.  block_table:
    [B, max_pages] int32, the pages of each sequence in order; lengths: [B] int32, keys of each.
    scale: 1 / sqrt(d) if None.  splits: of each sequence, by `choose_splits` for the longest that
    the table can hold if None (lengths lie on the GPU, and asking would wait for it).
    Raises ValueError for what does not fit.
    """
    check_decoding(q, k, v, 2, block_n)
    check_offsets(1, k=k, v=v)  # within a page; pages may lie anywhere
    check_table(q, k, block_table, lengths)
    for tensor in (q, k, v, block_table, lengths):
        check_device(paged_decode_kernel, tensor)
    (B, H, d), (_, page_size, Hkv, _) = q.shape, k.shape
    blocks = max(1, triton.cdiv(block_table.shape[1] * page_size, block_n))
    splits = choose_splits(B * Hkv, blocks, sm_count(q.device)) if splits is None else splits
    if not 1 <= splits <= MAX_SPLITS:
        raise ValueError(f"need 1 to {MAX_SPLITS} splits, got {splits}")
    part, part_lse = empty_parts(q, splits)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    strides = [*q.stride()[:2], *k.stride()[:3], *v.stride()[:3], block_table.stride(0)]
    paged_decode_kernel[(splits, B * Hkv)](
        q, k, v, block_table, lengths, part, part_lse, *strides, Hkv, H // Hkv, splits, scale_log2,
        HEAD=d, D=triton.next_power_of_2(d), BN=block_n, PAGE=page_size,
        BG=max(SMALLEST_BLOCK, triton.next_power_of_2(H // Hkv)),
    )  # fmt: skip
    return merge_parts(part, part_lse, q.dtype)


def compile_cases() -> list[Case]:
    """The kernel as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensors = {name: "*bf16" for name in "QKV"} | {"Table": "*i32", "Lengths": "*i32"}
    tensors |= {"Part": "*fp32", "PartLSE": "*fp32", "scale_log2": 0.1}
    strides = {"batch_q": 4096, "head_q": 128, "batch_t": 8192}
    strides |= {f"{dim}_{t}": n for t in "kv" for dim, n in
                {"page": 16 * 1024, "row": 1024, "head": 128}.items()}  # fmt: skip
    numbers = {"HKV": 8, "GROUP": 4, "SPLITS": 16, "BG": 16, "BN": 64}
    numbers |= {"HEAD": 128, "D": 128, "PAGE": 16}
    return [Case("paged decoding bf16", paged_decode_kernel, tensors | strides | numbers)]
