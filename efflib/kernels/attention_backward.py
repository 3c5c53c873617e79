"""FlashAttention backward: dQ, dK and dV from q, k, v, o and lse, with the scores made again.

    p_ij = exp(s_ij - lse_i),     s_ij = scale q_i . k_j
    dv_j = sum_i p_ij do_i
    dp_ij = do_i . v_j
    ds_ij = p_ij (dp_ij - delta_i),   delta_i = sum_j p_ij dp_ij - dlse_i = o_i . do_i - dlse_i
    dq_i = scale sum_j ds_ij k_j,     dk_j = scale sum_i ds_ij q_i

The forward pass keeps T numbers (lse), not T S probabilities; making them again costs one product
of three or four, and no traffic beyond Q and K.  delta needs no row of P: the sum over keys of
p dp is that of p v, which is o, times do.  And d lse_i / d s_ij = p_ij, so a gradient of lse, as
merging parts of a sequence gives, only changes delta.

Two kernels, because dQ adds up over keys and dK, dV over queries: one walks along the keys for a
block of queries, one along the queries (and the query heads of its key head) for a block of keys.
No atomics: equal inputs give equal bits.

    FLOPs  6 + 8 block_m block_n d per tile (three and four products), 3.5 times the forward pass

Where well-known implementations differ
- FlashAttention-2 makes P once per tile in one kernel over blocks of keys (five products, 2.5 times
  the forward pass) and adds dQ to memory with atomics in float32, in an order that changes from run
  to run; deterministic=True adds up parts instead.  Triton's tutorial and FlexAttention do as here.
- delta in a kernel of its own there; here the kernel for dQ, which holds these rows, stores it.
- GQA: FlashAttention expands dK, dV to all query heads and sums; here one program sums in float32.
- torch gives NaN gradients for a query without keys in some backends; here they are 0.
Sources: Dao et al. 2022 (arXiv:2205.14135), appendix B.4; Dao 2023 (arXiv:2307.08691), algorithm 2.
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
    alignment_shift,
    check,
    check_device,
    check_sizes,
)
from efflib.kernels.windowed_attention import check_window, key_ranges, visible

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

LOG2_E_ = tl.constexpr(LOG2_E)


@triton.jit
def load_lse_log2(LSE, row, on):
    """lse [BM] in units of log2; 0 for a query without keys, so that exp2(-inf - lse) is 0."""
    lse = tl.load(LSE + row, mask=on, other=0.0)
    return tl.where(lse == float("-inf"), 0.0, lse) * LOG2_E_


@triton.jit
def probabilities(a, b, seen, lse_log2, scale_log2):
    """p of queries a and keys b, or of keys a and queries b: of what a dot can use as it is."""
    s = tl.dot(a, tl.trans(b), input_precision="ieee") * scale_log2
    return tl.exp2(tl.where(seen, s, float("-inf")) - lse_log2)


@triton.jit
def _add_keys(
    dq, q, do, lse_log2, delta, K, V, row_k, row_v, start, stop, rows, shift, window, sinks,
    scale_log2, D: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """dq plus what keys start..stop give, still without the scale."""
    d = tl.arange(0, D)
    for first in tl.range(start, stop, BN):
        n = first + tl.arange(0, BN)
        on = n < stop
        k = tl.load(K + n[:, None] * row_k + d[None, :], mask=on[:, None], other=0.0)
        v = tl.load(V + n[:, None] * row_v + d[None, :], mask=on[:, None], other=0.0)
        seen = visible(rows[:, None] + shift, n[None, :], window, sinks, CAUSAL, WINDOW)
        p = probabilities(q, k, seen & on[None, :], lse_log2[:, None], scale_log2)  # [BM, BN]
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def query_gradient_kernel(
    Q, K, V, Out, LSE, DOut, DLSE, DQ, Delta,
    batch_q, head_q, row_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    H, GROUP, T, S, shift, window, sinks, scale, scale_log2, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """dQ and delta of one block of queries of one head.  Grid: (ceil(T / BM), B H)."""
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    K += b * batch_k + h // GROUP * head_k
    V += b * batch_v + h // GROUP * head_v
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)  # [BM]
    d = tl.arange(0, D)[None, :]
    on = rows < T
    Q += b * batch_q + h * head_q
    q = tl.load(Q + rows[:, None] * row_q + d, mask=on[:, None], other=0.0)

    row = (b * H + h) * T + rows  # of the tensors that are contiguous
    at = row[:, None] * D + d
    do = tl.load(DOut + at, mask=on[:, None], other=0.0)
    o = tl.load(Out + at, mask=on[:, None], other=0.0)
    dlse = tl.load(DLSE + row, mask=on, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1) - dlse
    tl.store(Delta + row, delta, mask=on)
    lse_log2 = load_lse_log2(LSE, row, on)

    sinks_stop, start, stop = key_ranges(first, T, S, shift, window, sinks, BM, CAUSAL, WINDOW)
    dq = tl.zeros([BM, D], tl.float32)
    if WINDOW:
        dq = _add_keys(dq, q, do, lse_log2, delta, K, V, row_k, row_v, 0, sinks_stop, rows, shift,
                       window, sinks, scale_log2, D, BN, CAUSAL, WINDOW)  # fmt: skip
    dq = _add_keys(dq, q, do, lse_log2, delta, K, V, row_k, row_v, start, stop, rows, shift,
                   window, sinks, scale_log2, D, BN, CAUSAL, WINDOW)  # fmt: skip
    tl.store(DQ + at, (dq * scale).to(DQ.dtype.element_ty), mask=on[:, None])


@triton.jit
def key_gradient_kernel(
    Q, K, V, LSE, Delta, DOut, DK, DV,
    batch_q, head_q, row_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    HKV, GROUP, T, S, shift, window, sinks, scale, scale_log2, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of keys of one key head.  Grid: (ceil(S / BN), B Hkv)."""
    b = (tl.program_id(1) // HKV).to(tl.int64)
    head = (tl.program_id(1) % HKV).to(tl.int64)
    first = tl.program_id(0) * BN
    n = first + tl.arange(0, BN)  # [BN]
    d = tl.arange(0, D)[None, :]
    exists = n < S
    K += b * batch_k + head * head_k
    V += b * batch_v + head * head_v
    k = tl.load(K + n[:, None] * row_k + d, mask=exists[:, None], other=0.0)
    v = tl.load(V + n[:, None] * row_v + d, mask=exists[:, None], other=0.0)

    start, stop = 0, T  # queries that may see one of these keys
    if CAUSAL:
        start = tl.maximum(first - shift, 0)
    if WINDOW:  # the last query whose window holds the last key; all see the sinks
        reach = tl.minimum(first + BN, S) - 1 + window - shift
        stop = tl.where(first < sinks, T, tl.minimum(T, reach))
    dk, dv = tl.zeros([BN, D], tl.float32), tl.zeros([BN, D], tl.float32)
    for g in range(GROUP):
        h = head * GROUP + g
        for first_row in tl.range(start, stop, BM):
            rows = first_row + tl.arange(0, BM)  # [BM]
            on = rows < stop
            row = (b * HKV * GROUP + h) * T + rows
            at_q = Q + b * batch_q + h * head_q + rows[:, None] * row_q + d
            q = tl.load(at_q, mask=on[:, None], other=0.0)
            do = tl.load(DOut + row[:, None] * D + d, mask=on[:, None], other=0.0)
            delta = tl.load(Delta + row, mask=on, other=0.0)
            lse_log2 = load_lse_log2(LSE, row, on)
            seen = visible(rows[None, :] + shift, n[:, None], window, sinks, CAUSAL, WINDOW)
            p = probabilities(k, q, seen, lse_log2[None, :], scale_log2)  # [BN, BM]
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = p * (dp - delta[None, :])
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    at = ((b * HKV + head) * S + n[:, None]) * D + d
    tl.store(DK + at, (dk * scale).to(DK.dtype.element_ty), mask=exists[:, None])
    tl.store(DV + at, dv.to(DV.dtype.element_ty), mask=exists[:, None])


def check_outputs(q: Tensor, o: Tensor, lse: Tensor, do: Tensor) -> None:
    """ValueError unless shapes are those that q gives; RuntimeError as `check_device`."""
    check_device(query_gradient_kernel, q)
    check_sizes(q.shape[3], d=q.shape[3])
    if o.shape != q.shape or do.shape != q.shape or lse.shape != q.shape[:3]:
        shapes = [tuple(t.shape) for t in (o, do, lse)]
        raise ValueError(f"need o and do {tuple(q.shape)}, lse {tuple(q.shape[:3])}, got {shapes}")


def attention_backward(
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
    block: int = 64,
    step: int = 32,
    num_warps: int = 8,
    num_stages: int = 2,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients (dq, dk, dv) in the shapes and the dtype of q, k, v, contiguous.

    q, k, v (d a power of two) and options as given to `flash_attention` or `windowed_attention`;
    o [B, H, T, d] and lse [B, H, T] as returned; do, dlse: the gradients of those (dlse None: 0).
    block: rows that a program holds (queries for dQ, keys for dK, dV); step: rows it walks by.
    Raises ValueError for what does not fit, RuntimeError for CPU tensors without the interpreter.
    """
    check(q, k, v, block, step)
    check_window(causal, window, sinks)
    check_outputs(q, o, lse, do)
    (B, H, T, d), (_, Hkv, S, _) = q.shape, k.shape
    o, lse, do = o.contiguous(), lse.contiguous(), do.contiguous()
    dlse = torch.zeros_like(lse) if dlse is None else dlse.contiguous()
    dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
    delta, scale = torch.empty_like(lse), 1 / math.sqrt(d) if scale is None else scale
    strides = [s for t in (q, k, v) for s in t.stride()[:3]]
    masks = alignment_shift(T, S, causal), window or 0, sinks
    options = {"D": d, "num_warps": num_warps, "num_stages": num_stages}
    options |= {"CAUSAL": causal is not None, "WINDOW": window is not None}
    query_gradient_kernel[(triton.cdiv(T, block), B * H)](
        q, k, v, o, lse, do, dlse, dq, delta, *strides,
        H, H // Hkv, T, S, *masks, scale, scale * LOG2_E, BM=block, BN=step, **options,
    )  # fmt: skip
    key_gradient_kernel[(triton.cdiv(S, block), B * Hkv)](
        q, k, v, lse, delta, do, dk, dv, *strides,
        Hkv, H // Hkv, T, S, *masks, scale, scale * LOG2_E, BM=step, BN=block, **options,
    )  # fmt: skip
    return dq, dk, dv


def compile_cases() -> list[Case]:
    """Both kernels as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    names = ("Q", "K", "V", "Out", "DOut", "DQ", "DK", "DV")
    tensor = torch.empty(1, 32, 4096, 128, dtype=torch.bfloat16, device="meta")
    every = {name: tensor for name in names} | {n: "*fp32" for n in ("LSE", "DLSE", "Delta")}
    every |= {f"{n}_{t}": s for t in "qkv" for n, s in zip(
        ("batch", "head", "row"), tensor.stride(), strict=False)}  # fmt: skip
    every |= {"H": 32, "HKV": 32, "GROUP": 4, "T": 4096, "S": 4096, "shift": 0, "window": 0}
    every |= {"sinks": 0, "scale": 0.1, "scale_log2": 0.1, "D": 128}
    every |= {"CAUSAL": True, "WINDOW": False}
    options = {"num_warps": 8, "num_stages": 2}
    return [
        Case(name, kernel, {p: (every | blocks)[p] for p in kernel.arg_names}, options)
        for name, kernel, blocks in (
            ("attention backward, dQ, bf16", query_gradient_kernel, {"BM": 64, "BN": 32}),
            ("attention backward, dK and dV, bf16", key_gradient_kernel, {"BM": 32, "BN": 64}),
        )
    ]
