"""Sliding-window attention with sinks: each query sees a few keys, so only these are moved.

    query i sees key j  if  i + shift - window < j <= i + shift,  or  j < sinks and j <= i + shift

A block of queries needs one run of keys for its windows and one for the sinks, whatever S is:

    keys of a block  <=  sinks + window + block_m - 1        instead of S

so time and traffic grow like T window, not T S.  The sinks are the first keys of the sequence,
which softmax uses to leave weight that no key should get: window attention without them fails
once they have left the window (Xiao et al. 2024, arXiv:2309.17453, section 3).

Where well-known implementations differ
- window: here and in transformers the number of keys with the query's own.  FlashAttention's
  window_size=(left, right) counts those before it: left = window - 1.
- sinks: here keys, of which none is new.  StreamingLLM also renumbers positions, which happens
  before attention.  gpt-oss calls a learned number in softmax's denominator a sink: no key at all.
- Mask only: torch's SDPA takes the mask as a tensor and computes all T S scores; FlexAttention
  skips blocks as here.
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
    in_head,
)

if TYPE_CHECKING:
    from efflib.meter.compiling import Case


@triton.jit
def visible(i, j, window, sinks, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which keys j are seen by queries whose own key is i; tiles that can be broadcast."""
    if WINDOW:
        return (j <= i) & ((j > i - window) | (j < sinks))
    elif CAUSAL:
        return j <= i
    else:
        return tl.full([1, 1], 1, tl.int1)


@triton.jit
def key_ranges(first, T, S, shift, window, sinks, BM: tl.constexpr, CAUSAL: tl.constexpr,
               WINDOW: tl.constexpr):  # fmt: skip
    """(stop of the sinks, start and stop of the others): keys that queries first.. may see."""
    start, stop, sinks_stop = 0, S, 0
    if CAUSAL:
        stop = tl.minimum(S, tl.maximum(tl.minimum(first + BM, T) + shift, 0))
    if WINDOW:
        start = tl.minimum(S, tl.maximum(first + shift + 1 - window, 0))
        sinks_stop = tl.minimum(sinks, start)
    return sinks_stop, start, stop


@triton.jit
def _attend_window(
    acc, total, m, q, K, V, row_k, row_v, start, stop, rows, shift, window, sinks, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Go on with keys start..stop."""
    d = tl.arange(0, D)
    for first in tl.range(start, stop, BN):
        n = first + tl.arange(0, BN)
        exists = n < stop
        k = tl.load(K + n[None, :] * row_k + d[:, None],
                    mask=in_head(exists[None, :], d[:, None], HEAD, D), other=0.0)  # fmt: skip
        v = tl.load(V + n[:, None] * row_v + d[None, :],
                    mask=in_head(exists[:, None], d[None, :], HEAD, D), other=0.0)  # fmt: skip
        s = tl.dot(q, k, input_precision="ieee") * scale_log2  # [BM, BN], in units of log2
        seen = visible(rows[:, None] + shift, n[None, :], window, sinks, True, True)
        s = tl.where(seen & exists[None, :], s, float("-inf"))
        acc, total, m = attend_scores(acc, total, m, s, v)
    return acc, total, m


@triton.jit
def windowed_attention_kernel(
    Q, K, V, Out, LSE,
    batch_q, head_q, row_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    H, GROUP, T, S, shift, window, sinks, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head.  Grid: (ceil(T / BM), B H)."""
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    K += b * batch_k + h // GROUP * head_k
    V += b * batch_v + h // GROUP * head_v
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)  # [BM]
    d = tl.arange(0, D)
    on = rows < T
    Q += b * batch_q + h * head_q
    inside = in_head(on[:, None], d[None, :], HEAD, D)  # [BM, D]
    q = tl.load(Q + rows[:, None] * row_q + d[None, :], mask=inside, other=0.0)

    sinks_stop, start, stop = key_ranges(first, T, S, shift, window, sinks, BM, True, True)
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    acc, total, m = _attend_window(acc, total, m, q, K, V, row_k, row_v, 0, sinks_stop,
                                   rows, shift, window, sinks, scale_log2, HEAD, D, BN)  # fmt: skip
    acc, total, m = _attend_window(acc, total, m, q, K, V, row_k, row_v, start, stop,
                                   rows, shift, window, sinks, scale_log2, HEAD, D, BN)  # fmt: skip

    o = acc / tl.where(total == 0, 1.0, total)[:, None]  # total = 0: no key seen, acc = 0
    row = (b * H + h) * T + rows
    tl.store(Out + row[:, None] * HEAD + d[None, :], o.to(Out.dtype.element_ty), mask=inside)
    tl.store(LSE + row, (m + tl.log2(total)) * LN_2, mask=on)


def check_window(causal: str | None, window: int | None, sinks: int) -> None:
    """Raises ValueError unless window and sinks make sense together."""
    if window is None and sinks:
        raise ValueError(f"sinks need a window: sinks {sinks}, window None")
    if window is not None and (window < 1 or sinks < 0 or causal is None):
        raise ValueError(
            "need window >= 1, sinks >= 0 and a causal alignment: "
            f"window {window}, sinks {sinks}, causal {causal!r}"
        )


def windowed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    sinks: int = 0,
    causal: str = "bottom_right",
    scale: float | None = None,
    block_m: int = 64,
    block_n: int = 64,
    num_warps: int = 8,
    num_stages: int = 2,
) -> tuple[Tensor, Tensor]:
    """Attention o [B, H, T, d] in q's dtype, and lse [B, H, T] float32, of windows and sinks.

    Arguments as for `flash_attention`; window: keys that a query sees, with its own; sinks: first
    keys that it sees besides.  A query without keys: o = 0, lse = -inf.
    Raises ValueError for what does not fit, RuntimeError for CPU tensors without the interpreter.
    """
    check(q, k, v, block_m, block_n)
    check_window(causal, window, sinks)
    check_device(windowed_attention_kernel, q)
    (B, H, T, d), (_, Hkv, S, _) = q.shape, k.shape
    shift = alignment_shift(T, S, causal)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    o = torch.empty((B, H, T, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    strides = [s for t in (q, k, v) for s in t.stride()[:3]]
    windowed_attention_kernel[(triton.cdiv(T, block_m), B * H)](
        q, k, v, o, lse, *strides, H, H // Hkv, T, S, shift, window, sinks, scale_log2,
        HEAD=d, D=triton.next_power_of_2(d), BM=block_m, BN=block_n,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o, lse


def compile_cases() -> list[Case]:
    """The kernel as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensor = torch.empty(1, 32, 4096, 128, dtype=torch.bfloat16, device="meta")
    tensors = {name: tensor for name in ("Q", "K", "V", "Out")} | {"LSE": "*fp32"}
    strides = {f"{n}_{t}": s for t in "qkv" for n, s in zip(
        ("batch", "head", "row"), tensor.stride(), strict=False)}  # fmt: skip
    sizes = {"H": 32, "GROUP": 4, "T": 4096, "S": 4096, "shift": 0, "scale_log2": 0.1}
    blocks = {"window": 1024, "sinks": 4, "HEAD": 128, "D": 128, "BM": 64, "BN": 64}
    arguments = tensors | strides | sizes | blocks
    options = {"num_warps": 8, "num_stages": 2}
    return [Case("window and sinks bf16", windowed_attention_kernel, arguments, options)]
