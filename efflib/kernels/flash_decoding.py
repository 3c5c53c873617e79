"""FlashDecoding: attention of one new token per sequence, its keys split among many programs.

    part s (keys K_s):   lse_s = log sum_{j in K_s} exp(s_j),   o_s = softmax over K_s, times V
    merge:               lse = log sum_s exp(lse_s),            o = sum_s exp(lse_s - lse) o_s

Decoding reads the whole cache for one query: about one FLOP a byte, so only bandwidth counts, and
reading at full bandwidth takes all SMs.  FlashAttention starts one program per block of queries
and head; with one query at batch 1 that is fewer programs than SMs, whatever the length S.  So
each sequence is cut along its keys, and a second kernel merges the parts by their lse.

GQA packed: the H / Hkv query heads of a key head are the rows of one product, so K and V are read
once, not once per query head, and rows that tl.dot asks for anyway (16) do some work.

    K, V  B Hkv S d elements each, once;   Q  splits B H d;   parts  splits B H (d + 1) in float32,
    written and read again: about 2 splits H / (Hkv S) of the bytes of a 16-bit cache.

How many splits: programs should fill the SMs in whole waves.  FlashAttention's rule, which is
`choose_splits`: 1 if programs >= 0.8 SMs; else, of the numbers of splits that change how many
blocks a split has, the smallest whose waves are filled at least 0.85 times as well as the best.

Where well-known implementations differ
- lse: natural logarithm here, in FlashAttention and torch; FlashInfer merges base 2.
- FlashAttention 2 gives the rule twice the SMs: two of its programs of 128 threads fit on one.
- One split: here and in FlashAttention the first kernel writes the output, and nothing is merged.
- Servers often fix the number of splits (SGLang's Triton backend: 8), as a CUDA graph replays one
  grid for all lengths.
Sources: Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding for long-context inference"; the rule:
num_splits_heuristic in flash_api.cpp of FlashAttention 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import (
    DTYPES,
    LN_2,
    LOG2_E,
    SMALLEST_BLOCK,
    attend_scores,
    check_device,
    check_sizes,
    in_head,
)

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

MAX_SPLITS = 128
FILLED = 0.8  # programs per SM from which on nothing is split
GOOD_WAVES = 0.85  # of the best efficiency of waves


@triton.jit
def store_part(
    Part, PartLSE, row, acc, total, m, on, HEAD: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Finish a part: row [BG] of Part and PartLSE, where on.  Without keys: 0 and -inf."""
    d = tl.arange(0, D)
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    mask = in_head(on[:, None], d[None, :], HEAD, D)
    tl.store(Part + row[:, None] * HEAD + d[None, :], o.to(Part.dtype.element_ty), mask=mask)
    tl.store(PartLSE + row, (m + tl.log2(total)) * LN_2, mask=on)


@triton.jit
def decode_kernel(
    Q, K, V, Part, PartLSE, batch_q, head_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    HKV, GROUP, S, SPLITS, per_split, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Keys split * per_split .. of one key head.  Grid: (SPLITS, B Hkv)."""
    b = (tl.program_id(1) // HKV).to(tl.int64)
    head = (tl.program_id(1) % HKV).to(tl.int64)
    split = tl.program_id(0)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    on = g < GROUP
    rows = Q + b * batch_q + (head * GROUP + g) * head_q  # [BG]
    inside = in_head(on[:, None], d[None, :], HEAD, D)
    q = tl.load(rows[:, None] + d[None, :], mask=inside, other=0.0)
    K += b * batch_k + head * head_k
    V += b * batch_v + head * head_v

    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    start = split * per_split
    stop = tl.minimum(start + per_split, S)
    for first in tl.range(start, stop, BN):
        n = (first + tl.arange(0, BN)).to(tl.int64)
        seen = n < stop
        k = tl.load(K + n[None, :] * row_k + d[:, None],
                    mask=in_head(seen[None, :], d[:, None], HEAD, D), other=0.0)  # fmt: skip
        v = tl.load(V + n[:, None] * row_v + d[None, :],
                    mask=in_head(seen[:, None], d[None, :], HEAD, D), other=0.0)  # fmt: skip
        s = tl.dot(q, k, input_precision="ieee") * scale_log2  # [BG, BN], in units of log2
        s = tl.where(seen[None, :], s, float("-inf"))
        acc, total, m = attend_scores(acc, total, m, s, v)
    row = ((b * HKV + head) * GROUP + g) * SPLITS + split
    store_part(Part, PartLSE, row, acc, total, m, on, HEAD, D)


@triton.jit
def merge_kernel(
    Part, PartLSE, Out, LSE, SPLITS, HEAD: tl.constexpr, D: tl.constexpr, BS: tl.constexpr
):  # fmt: skip
    """The parts of one query head.  Grid: (B H,)."""
    row = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, BS), tl.arange(0, D)
    on = s < SPLITS
    lse = tl.load(PartLSE + row * SPLITS + s, mask=on, other=float("-inf"))  # [BS]
    largest = tl.max(lse, 0)
    # a sequence without keys: -inf - (-inf) would be NaN
    weight = tl.exp(lse - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weight, 0)
    at = (row * SPLITS + s)[:, None] * HEAD + d[None, :]
    mask = in_head(on[:, None], d[None, :], HEAD, D)
    part = tl.load(Part + at, mask=mask, other=0.0)  # [BS, D]
    o = tl.sum(part * weight[:, None], 0) / tl.where(total == 0, 1.0, total)
    tl.store(Out + row * HEAD + d, o.to(Out.dtype.element_ty), mask=d < HEAD)
    tl.store(LSE + row, largest + tl.log(total))


def choose_splits(programs: int, blocks: int, sms: int) -> int:
    """Splits of each of `programs` walks over `blocks` blocks of keys, on `sms` SMs."""
    if programs >= FILLED * sms:
        return 1
    efficiency = {}
    for splits in range(1, min(MAX_SPLITS, sms, blocks) + 1):
        if splits == 1 or -(-blocks // splits) != -(-blocks // (splits - 1)):
            waves = programs * splits / sms
            efficiency[splits] = waves / math.ceil(waves)
    best = max(efficiency.values())
    return next(n for n, filled in efficiency.items() if filled >= GOOD_WAVES * best)


def sm_count(device: torch.device) -> int:
    """SMs of a GPU; 1 for the interpreter, which runs one program at a time."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def check_decoding(q: Tensor, k: Tensor, v: Tensor, group_of: int, block_n: int) -> None:
    """Raises ValueError unless q [B, H, d] fits k and v, whose dimension group_of is Hkv."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.ndim != 3 or k.ndim != 4 or k.shape != v.shape or 0 in (*q.shape, *k.shape):
        raise ValueError(f"need q [B, H, d], k and v of one shape with 4 dimensions: {shapes}")
    if q.shape[1] % k.shape[group_of] or q.shape[2] != k.shape[3]:
        raise ValueError(f"need one d, and H a multiple of Hkv: {shapes}")
    if len({t.dtype for t in (q, k, v)}) > 1 or q.dtype not in DTYPES:
        raise ValueError(f"need one dtype of {DTYPES}, got {q.dtype}, {k.dtype}, {v.dtype}")
    if any(t.stride(-1) != 1 for t in (q, k, v)):
        strides = [t.stride() for t in (q, k, v)]
        raise ValueError(f"the last dimension must be contiguous, got strides {strides}")
    check_sizes(q.shape[2], block_n=block_n)


def empty_parts(q: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Where parts go: o [B, H, splits, d] and lse [B, H, splits]; one part is the result."""
    B, H, d = q.shape
    dtype = torch.float32 if splits > 1 else q.dtype
    part = torch.empty((B, H, splits, d), dtype=dtype, device=q.device)
    return part, torch.empty((B, H, splits), dtype=torch.float32, device=q.device)


def merge_parts(part: Tensor, part_lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Parts as of `empty_parts` -> o [B, H, d] in dtype, lse [B, H] float32."""
    B, H, splits, d = part.shape
    if splits == 1:
        return part.view(B, H, d), part_lse.view(B, H)
    o = torch.empty((B, H, d), dtype=dtype, device=part.device)
    lse = torch.empty((B, H), dtype=torch.float32, device=part.device)
    block = triton.next_power_of_2(splits)
    merge_kernel[(B * H,)](
        part, part_lse, o, lse, splits, HEAD=d, D=triton.next_power_of_2(d), BS=block
    )
    return o, lse


def flash_decoding(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    splits: int | None = None,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """Attention of one query per head: o [B, H, d] in q's dtype, lse [B, H] float32.

    q: [B, H, d]; k, v: [B, Hkv, S, d] with H a multiple of Hkv (query head h uses h // (H/Hkv));
    fp16, bf16 or fp32, d a multiple of 16.  scale: 1 / sqrt(d) if None.  splits: by `choose_splits`
    if None; fewer are made if some would be empty.  Raises ValueError for what does not fit.
    """
    check_decoding(q, k, v, 1, block_n)
    for tensor in (q, k, v):
        check_device(decode_kernel, tensor)
    (B, H, d), (_, Hkv, S, _) = q.shape, k.shape
    blocks = triton.cdiv(S, block_n)
    splits = choose_splits(B * Hkv, blocks, sm_count(q.device)) if splits is None else splits
    if not 1 <= splits <= MAX_SPLITS or q.shape[0] != k.shape[0]:
        raise ValueError(f"need 1 to {MAX_SPLITS} splits and one B: {splits}, {B}, {k.shape[0]}")
    per_split = triton.cdiv(blocks, splits) * block_n  # keys
    splits = triton.cdiv(S, per_split)
    part, part_lse = empty_parts(q, splits)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    strides = [*q.stride()[:2], *k.stride()[:3], *v.stride()[:3]]
    decode_kernel[(splits, B * Hkv)](
        q, k, v, part, part_lse, *strides, Hkv, H // Hkv, S, splits, per_split, scale_log2,
        HEAD=d, D=triton.next_power_of_2(d), BN=block_n,
        BG=max(SMALLEST_BLOCK, triton.next_power_of_2(H // Hkv)),
    )  # fmt: skip
    return merge_parts(part, part_lse, q.dtype)


def compile_cases() -> list[Case]:
    """Both kernels as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    q = torch.empty(1, 32, 128, dtype=torch.bfloat16, device="meta")
    kv = torch.empty(1, 8, 2**17, 128, dtype=torch.bfloat16, device="meta")
    dims = ("batch", "head", "row")
    strides = {f"{dim}_{name}": stride for name, t in {"q": q, "k": kv, "v": kv}.items()
               for dim, stride in zip(dims, t.stride()[:-1], strict=False)}  # fmt: skip
    numbers = {"HKV": 8, "GROUP": 4, "S": 2**17, "SPLITS": 16, "per_split": 2**13}
    tensors = {"Q": q, "K": kv, "V": kv, "Part": "*fp32", "PartLSE": "*fp32", "scale_log2": 0.1}
    blocks = {"HEAD": 128, "D": 128, "BG": 16, "BN": 64}
    merged = {"Part": "*fp32", "PartLSE": "*fp32", "Out": "*bf16", "LSE": "*fp32", "SPLITS": 128}
    return [
        Case("flash decoding bf16", decode_kernel, tensors | strides | numbers | blocks),
        Case("merge 128 splits", merge_kernel, merged | {"HEAD": 128, "D": 128, "BS": 128}),
    ]
