"""FlashAttention forward for Hopper and later: `flash_attention`, with tiles moved by TMA.

The algorithm, the bytes and the FLOPs are those of `flash_attention`.  What differs is who works:

- A tensor descriptor says once where a matrix [S, D] lies and how large a tile is.  The Tensor
  Memory Accelerator (TMA) then fetches a tile by its coordinates: one thread asks, nobody computes
  addresses, and registers stay free for the products.  Outside the matrix it fills in zeros, and
  what is stored there is dropped, so loads need no mask.
- warp_specialize: some warps only fetch tiles and the others only compute (producer and consumer,
  with the tiles in between in shared memory).  Registers move from the first to the second.
  Triton specializes one loop, so masked and unmasked keys share one that masks all.
- Causal: the last block of queries sees the most keys, so it starts first and short ones fill up
  the end.

Before sm_90 there is no TMA; Triton then computes the addresses after all.
Sources: Shah et al. 2024, FlashAttention-3 (arXiv:2407.08608), section 3.1; NVIDIA, CUDA C++
Programming Guide, asynchronous data copies using the Tensor Memory Accelerator.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import (
    LN_2,
    LOG2_E,
    alignment_shift,
    attend_scores,
    check,
    check_device,
    check_sizes,
    key_stops,
)

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

TMA_ALIGNMENT = 16  # bytes: addresses and strides of a descriptor


@triton.jit
def _attend_tiles(
    acc, total, m, q, keys, values, start, stop, rows, S, shift, scale_log2,
    BN: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """Go on with keys start..stop.  MASKED: not every query may see every one of them."""
    for first in tl.range(start, stop, BN, warp_specialize=SPECIALIZE):
        k = keys.load([first, 0])  # [BN, D], zeros beyond S
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2  # [BM, BN]
        if MASKED:
            n = first + tl.arange(0, BN)
            seen = n[None, :] < S
            if CAUSAL:
                seen = seen & (n[None, :] <= rows[:, None] + shift)
            s = tl.where(seen, s, float("-inf"))
        v = values.load([first, 0])
        acc, total, m = attend_scores(acc, total, m, s, v)
    return acc, total, m


@triton.jit
def tma_attention_kernel(
    Q, K, V, Out, LSE,
    batch_q, head_q, row_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    H, GROUP, T, S, shift, scale_log2, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head.  Grid: (ceil(T / BM), B H).  RAGGED: S % BN > 0."""
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block  # the longest first
    first = block * BM
    rows = first + tl.arange(0, BM)  # [BM]

    head = b * H + h
    Q += b * batch_q + h * head_q
    K += b * batch_k + h // GROUP * head_k
    V += b * batch_v + h // GROUP * head_v
    queries = tl.make_tensor_descriptor(Q, [T, D], [row_q, 1], [BM, D])
    keys = tl.make_tensor_descriptor(K, [S, D], [row_k, 1], [BN, D])
    values = tl.make_tensor_descriptor(V, [S, D], [row_v, 1], [BN, D])
    outputs = tl.make_tensor_descriptor(Out + head * T * D, [T, D], [D, 1], [BM, D])
    q = queries.load([first, 0])  # [BM, D], zeros beyond T

    whole, stop = key_stops(first, T, S, shift, BM, BN, CAUSAL)
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    if SPECIALIZE:
        acc, total, m = _attend_tiles(acc, total, m, q, keys, values, 0, stop, rows, S, shift,
                                      scale_log2, BN, CAUSAL, CAUSAL or RAGGED, True)  # fmt: skip
    else:
        acc, total, m = _attend_tiles(acc, total, m, q, keys, values, 0, whole, rows, S, shift,
                                      scale_log2, BN, CAUSAL, False, False)  # fmt: skip
        acc, total, m = _attend_tiles(acc, total, m, q, keys, values, whole, stop, rows, S, shift,
                                      scale_log2, BN, CAUSAL, True, False)  # fmt: skip

    o = acc / tl.where(total == 0, 1.0, total)[:, None]  # total = 0: no key seen, acc = 0
    outputs.store([first, 0], o.to(Out.dtype.element_ty))
    tl.store(LSE + head * T + rows, (m + tl.log2(total)) * LN_2, mask=rows < T)


def check_alignment(**tensors: Tensor) -> None:
    """Raises ValueError for a tensor that TMA cannot read: an address or a stride is odd."""
    for name, t in tensors.items():
        # a dimension of one element is never stepped along
        steps = [s for s, n in zip(t.stride()[:-1], t.shape[:-1], strict=True) if n > 1]
        if t.data_ptr() % TMA_ALIGNMENT or any(s * t.itemsize % TMA_ALIGNMENT for s in steps):
            raise ValueError(
                f"TMA needs addresses and strides that are multiples of {TMA_ALIGNMENT} bytes: "
                f"{name} starts at {t.data_ptr() % TMA_ALIGNMENT} of {TMA_ALIGNMENT} and has "
                f"strides {t.stride()} of {t.itemsize} bytes; use {name}.contiguous()"
            )


def _workspace(size: int, alignment: int, stream: int | None) -> Tensor:
    """Memory in which a kernel writes its descriptors down; Triton asks for it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def tma_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None = None,
    scale: float | None = None,
    block_m: int = 128,
    block_n: int = 128,
    num_warps: int = 8,
    num_stages: int = 2,
    warp_specialize: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention o [B, H, T, d] in q's dtype, and lse [B, H, T] float32.

    Arguments as for `flash_attention`, but d a power of two; addresses and strides must be
    multiples of 16 bytes.
    warp_specialize: warps that fetch beside num_warps that compute; Triton does it with
    num_warps=4, and with 8 ignores it without a word.
    Raises ValueError for what does not fit, RuntimeError for CPU tensors without the interpreter.
    """
    check(q, k, v, block_m, block_n)
    check_sizes(q.shape[3], d=q.shape[3])  # tiles of descriptors are powers of two
    check_alignment(q=q, k=k, v=v)
    check_device(tma_attention_kernel, q)
    if q.is_cuda:
        triton.set_allocator(_workspace)
    (B, H, T, d), (_, Hkv, S, _) = q.shape, k.shape
    shift = alignment_shift(T, S, causal)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    o = torch.empty((B, H, T, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    strides = [s for t in (q, k, v) for s in t.stride()[:3]]
    tma_attention_kernel[(triton.cdiv(T, block_m), B * H)](
        q, k, v, o, lse, *strides, H, H // Hkv, T, S, shift, scale_log2,
        D=d, BM=block_m, BN=block_n, CAUSAL=causal is not None, RAGGED=S % block_n > 0,
        SPECIALIZE=warp_specialize, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o, lse


def compile_cases() -> list[Case]:
    """The kernel as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensor = torch.empty(1, 32, 4096, 128, dtype=torch.bfloat16, device="meta")
    arguments = {name: tensor for name in ("Q", "K", "V", "Out")} | {"LSE": "*fp32"}
    arguments |= {f"{n}_{t}": s for t in "qkv" for n, s in zip(
        ("batch", "head", "row"), tensor.stride(), strict=False)}  # fmt: skip
    arguments |= {"H": 32, "GROUP": 4, "T": 4096, "S": 4096, "shift": 0, "scale_log2": 0.1}
    arguments |= {"D": 128, "BM": 128, "BN": 128, "CAUSAL": True, "RAGGED": False}
    return [
        Case(
            f"TMA attention causal bf16{name}",
            tma_attention_kernel,
            arguments | {"SPECIALIZE": name != ""},
            options,
            targets,
        )
        for name, options, targets in (
            ("", {"num_warps": 8, "num_stages": 2}, ("sm_90", "sm_100")),
            (", specialized", {"num_warps": 4, "num_stages": 2}, ("sm_90",)),
        )
    ]
