"""FlashAttention forward: exact attention that never stores the T x S scores.

    o_i = sum_j p_ij v_j,   p_ij = exp(s_ij) / sum_j exp(s_ij),   s_ij = scale q_i . k_j

One program holds block_m queries and walks along the keys, block_n at a time.  Softmax needs the
maximum and the sum of a whole row, and both can be corrected as more keys come (online softmax):

    m' = max(m, max_j s_ij)                     largest score so far
    c = exp(m - m')                             what everything so far was too large by
    total' = c total + sum_j exp(s_ij - m')     sum so far
    acc' = c acc + sum_j exp(s_ij - m') v_j     in the end  o = acc / total,  lse = m + log total

So Q is read and O written once, and K and V once per block of queries: T S d / block_m elements
each, where plain attention writes and reads T S scores.  What is on chip decides about block_m.

Where well-known implementations differ
- Causal with T != S.  "bottom_right" aligns the last query with the last key, as FlashAttention
  since 2.1 and every decoder with a cache; "top_left" aligns the first ones, as FlashAttention
  before and torch's is_causal=True.
- A query that sees no key: here o = 0 and lse = -inf, the log of an empty sum, which merges rightly
  with other parts.  FlashAttention gives lse = +inf, torch's is_causal NaN or 0 by backend.
- exp is computed as exp2 with log2(e) in the scale, as everywhere: GPUs have exp2 only.
- lse: natural logarithm, as in FlashAttention and torch; FlashInfer returns log2.
Sources: Dao et al. 2022 (arXiv:2205.14135), algorithm 1; Dao 2023 (arXiv:2307.08691), algorithm 1:
the query loop outside, and one division at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

LOG2_E = math.log2(math.e)
LN_2 = tl.constexpr(math.log(2))
ALIGNMENTS = (None, "top_left", "bottom_right")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SMALLEST_BLOCK = 16  # of tl.dot on tensor cores
OFFSETS = 2**31  # within a head kernels count elements in int32, of which GPUs do more at a time


@triton.jit
def in_head(mask, d, HEAD: tl.constexpr, D: tl.constexpr):
    """mask, where d is in the head besides: a head of 96 lies in tiles of D = 128."""
    return mask & (d < HEAD) if HEAD < D else mask


@triton.jit
def attend_scores(acc, total, m, s, v):
    """Go on with scores s [BM, BN], in units of log2 and -inf where masked, and v [BN, D]."""
    m_new = tl.maximum(m, tl.max(s, 1))  # [BM]
    # a row that has seen no key yet: -inf - (-inf) would be NaN
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])  # [BM, BN]
    correction = tl.exp2(m - m_safe)  # [BM]
    total = total * correction + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
    return acc, total, m_new


@triton.jit
def _attend(
    acc, total, m, q, K, V, row_k, row_v, start, stop, rows, S, shift, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Go on with keys start..stop.  MASKED: not every query may see every one of them."""
    d = tl.arange(0, D)
    for first in tl.range(start, stop, BN):
        n = first + tl.arange(0, BN)
        if MASKED or HEAD < D:
            on_k = in_head(n[None, :] < S, d[:, None], HEAD, D)
            on_v = in_head(n[:, None] < S, d[None, :], HEAD, D)
            k = tl.load(K + n[None, :] * row_k + d[:, None], mask=on_k, other=0.0)
            v = tl.load(V + n[:, None] * row_v + d[None, :], mask=on_v, other=0.0)
        else:
            k = tl.load(K + n[None, :] * row_k + d[:, None])  # [D, BN]
            v = tl.load(V + n[:, None] * row_v + d[None, :])  # [BN, D]
        s = tl.dot(q, k, input_precision="ieee") * scale_log2  # [BM, BN], in units of log2
        if MASKED:
            seen = n[None, :] < S
            if CAUSAL:
                seen = seen & (n[None, :] <= rows[:, None] + shift)
            s = tl.where(seen, s, float("-inf"))
        acc, total, m = attend_scores(acc, total, m, s, v)
    return acc, total, m


@triton.jit
def key_stops(first, T, S, shift, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """(whole, stop) for queries first .. first + BM: keys before `whole` need no mask, none from
    `stop` on is seen."""
    whole = S // BN * BN
    stop = S
    if CAUSAL:  # query i sees keys 0 .. i + shift
        whole = tl.minimum(whole, tl.maximum(first + shift + 1, 0) // BN * BN)
        stop = tl.minimum(S, tl.maximum(tl.minimum(first + BM, T) + shift, 0))
    return whole, stop


@triton.jit
def flash_attention_kernel(
    Q, K, V, Out, LSE,
    batch_q, head_q, row_q, batch_k, head_k, row_k, batch_v, head_v, row_v,
    batch_o, head_o, row_o, H, GROUP, T, S, shift, scale_log2,
    HEAD: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head.  Grid: (ceil(T / BM), B H)."""
    b = (tl.program_id(1) // H).to(tl.int64)
    h = (tl.program_id(1) % H).to(tl.int64)
    Q += b * batch_q + h * head_q
    K += b * batch_k + h // GROUP * head_k
    V += b * batch_v + h // GROUP * head_v
    Out += b * batch_o + h * head_o
    LSE += (b * H + h) * T
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)  # [BM]
    d = tl.arange(0, D)
    on = in_head(rows[:, None] < T, d[None, :], HEAD, D)  # [BM, D]
    q = tl.load(Q + rows[:, None] * row_q + d[None, :], mask=on, other=0.0)

    whole, stop = key_stops(first, T, S, shift, BM, BN, CAUSAL)
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    acc, total, m = _attend(acc, total, m, q, K, V, row_k, row_v, 0, whole,
                            rows, S, shift, scale_log2, HEAD, D, BN, CAUSAL, False)  # fmt: skip
    acc, total, m = _attend(acc, total, m, q, K, V, row_k, row_v, whole, stop,
                            rows, S, shift, scale_log2, HEAD, D, BN, CAUSAL, True)  # fmt: skip

    o = acc / tl.where(total == 0, 1.0, total)[:, None]  # total = 0: no key seen, acc = 0
    tl.store(Out + rows[:, None] * row_o + d[None, :], o.to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + rows, (m + tl.log2(total)) * LN_2, mask=rows < T)


def alignment_shift(T: int, S: int, causal: str | None) -> int:
    """Query i sees keys 0 .. i + shift.  Raises ValueError for an unknown alignment."""
    if causal not in ALIGNMENTS:
        raise ValueError(f"causal must be one of {ALIGNMENTS}, got {causal!r}")
    return S - T if causal == "bottom_right" else 0


def check_offsets(dim: int, **tensors: Tensor) -> None:
    """Raises ValueError if rows of one head, along dim, lie too far apart to be reached."""
    for name, t in tensors.items():
        step = max(t.stride(dim), t.shape[-1])  # results are contiguous
        if t.shape[dim] * step > OFFSETS:
            raise ValueError(
                f"{t.shape[dim]} rows of {name} that lie {step} elements apart reach beyond the "
                f"{OFFSETS} elements of a head that int32 counts; if they are strided, use "
                f"{name}.contiguous()"
            )


def check_sizes(d: int, /, **powers: int) -> None:
    """Raises ValueError for a head that is no multiple of 16 or a size that is no power of two."""
    if d % SMALLEST_BLOCK:
        raise ValueError(f"d must be a multiple of {SMALLEST_BLOCK}, got {d}")
    for name, size in powers.items():
        if size < SMALLEST_BLOCK or size & (size - 1):
            raise ValueError(f"{name} must be a power of two from {SMALLEST_BLOCK} on, got {size}")


def check(q: Tensor, k: Tensor, v: Tensor, block_m: int, block_n: int) -> None:
    """Raises ValueError unless q [B, H, T, d] and k, v [B, Hkv, S, d] fit the kernel."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or 0 in (*q.shape, *k.shape):
        raise ValueError(f"need q [B, H, T, d] and k, v [B, Hkv, S, d], none empty: {shapes}")
    if q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1] or q.shape[3] != k.shape[3]:
        raise ValueError(f"need one B, one d, and H a multiple of Hkv: {shapes}")
    if len({t.dtype for t in (q, k, v)}) > 1 or q.dtype not in DTYPES:
        raise ValueError(f"need one dtype of {DTYPES}, got {q.dtype}, {k.dtype}, {v.dtype}")
    if any(t.stride(-1) != 1 for t in (q, k, v)):
        strides = [t.stride() for t in (q, k, v)]
        raise ValueError(f"the last dimension must be contiguous, got strides {strides}")
    check_sizes(q.shape[3], block_m=block_m, block_n=block_n)
    check_offsets(2, q=q, k=k, v=v)


def check_device(kernel, tensor: Tensor) -> None:
    """Raises RuntimeError for a kernel that was compiled for a GPU and a tensor that is not there.

    Triton's own "Pointer argument cannot be accessed from Triton" does not say what to do.
    """
    if isinstance(kernel, triton.JITFunction) and tensor.device.type == "cpu":
        raise RuntimeError(
            f"{kernel.__name__} was compiled for a GPU and got a tensor on the CPU: move the "
            "tensors to the GPU (.cuda()), or interpret kernels: set TRITON_INTERPRET=1 in the "
            "environment, or import efflib.meter before anything that imports triton"
        )


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None = None,
    scale: float | None = None,
    block_m: int = 64,
    block_n: int = 64,
    num_warps: int = 4,
    num_stages: int = 2,
) -> tuple[Tensor, Tensor]:
    """Attention o [B, H, T, d] in q's dtype, and lse [B, H, T] float32.

    q: [B, H, T, d]; k, v: [B, Hkv, S, d] with H a multiple of Hkv (query head h uses h // (H/Hkv));
    fp16, bf16 or fp32, d a multiple of 16.  causal: None, "top_left" or "bottom_right".
    scale: 1 / sqrt(d) if None.
    Raises ValueError for what does not fit, RuntimeError for CPU tensors without the interpreter.
    """
    check(q, k, v, block_m, block_n)
    check_device(flash_attention_kernel, q)
    (B, H, T, d), (_, Hkv, S, _) = q.shape, k.shape
    shift = alignment_shift(T, S, causal)
    scale_log2 = (1 / math.sqrt(d) if scale is None else scale) * LOG2_E
    o = torch.empty((B, H, T, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    strides = [s for t in (q, k, v, o) for s in t.stride()[:3]]
    flash_attention_kernel[(triton.cdiv(T, block_m), B * H)](
        q, k, v, o, lse, *strides, H, H // Hkv, T, S, shift, scale_log2,
        HEAD=d, D=triton.next_power_of_2(d), BM=block_m, BN=block_n, CAUSAL=causal is not None,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o, lse


def compile_cases() -> list[Case]:
    """The kernel as for Llama-like heads, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    cases = []
    for d in (64, 128):
        tensor = torch.empty(1, 32, 4096, d, dtype=torch.bfloat16, device="meta")
        tensors = {name: tensor for name in ("Q", "K", "V", "Out")} | {"LSE": "*fp32"}
        strides = {f"{n}_{t}": s for t in "qkvo" for n, s in zip(
            ("batch", "head", "row"), tensor.stride(), strict=False)}  # fmt: skip
        sizes = {"H": 32, "GROUP": 4, "T": 4096, "S": 4096, "shift": 0, "scale_log2": 0.1}
        blocks = {"HEAD": d, "D": d, "BM": 128, "BN": 64, "CAUSAL": True}
        options = {"num_warps": 8, "num_stages": 2}
        name = f"flash attention d={d} causal bf16"
        arguments = tensors | strides | sizes | blocks
        cases.append(Case(name, flash_attention_kernel, arguments, options))
    return cases
