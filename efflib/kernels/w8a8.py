"""W8A8: a matrix product of int8 codes, summed in int32, scaled once at the end.

    y_mn = s_m s_n sum_k qx_mk qw_nk        s_m per token, s_n per output channel

The scales stand outside of the sum because neither depends on k; then all products are integers,
|qx qw| <= 127^2, and an int32 holds sums over K <= 133 144 of them exactly, in whatever order the
tensor cores add.  Half the bytes of fp16, and twice the rate of the tensor cores.

Where well-known implementations differ
- Order of scaling.  s_m s_n first, then times the sum, as `quantization.w8a8` does: equal to it bit
  by bit.  CUTLASS's epilogues multiply the sum by one and then the other: another rounding.
- The sum goes through float32: beyond 2^24 it is rounded once.  `int8_matmul` returns it as it is.
- bitsandbytes divides by 127^2 here, as its scales are maxima and not steps.
- A per-token quantization of x fused into the product saves writing qx (SmoothQuant fuses it into
  the LayerNorm before); here it has happened.
Source: as `quantization.w8a8`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import DTYPES, SMALLEST_BLOCK, check_device
from efflib.quantization.w8a8 import MAX_CHANNELS

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

LARGEST_BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 64


@triton.jit
def int8_gemm_kernel(
    X, W, XScale, WScale, Out, M, N, K, row_x, row_w,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """A tile [BM, BN] of y.  Grid: (ceil(M / BM), ceil(N / BN))."""
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.int32)
    for first in tl.range(0, K, BK):
        k = first + tl.arange(0, BK)
        on_x = (m < M)[:, None] & (k < K)[None, :]
        on_w = (k < K)[:, None] & (n < N)[None, :]
        x = tl.load(X + m[:, None] * row_x + k[None, :], mask=on_x, other=0)  # [BM, BK]
        w = tl.load(W + n[None, :] * row_w + k[:, None], mask=on_w, other=0)  # [BK, BN]
        acc = tl.dot(x, w, acc, out_dtype=tl.int32)
    at = Out + m[:, None] * N + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    if SCALED:
        s_m = tl.load(XScale + m, mask=m < M, other=0.0)  # [BM]
        s_n = tl.load(WScale + n, mask=n < N, other=0.0)  # [BN]
        y = acc.to(tl.float32) * (s_m[:, None] * s_n[None, :])
        tl.store(at, y.to(Out.dtype.element_ty), mask=inside)
    else:
        tl.store(at, acc, mask=inside)


def check_codes(x: Tensor, w: Tensor) -> None:
    """Raises ValueError unless x [M, K] and w [N, K] are int8 and their sums fit int32."""
    if x.dtype != torch.int8 or w.dtype != torch.int8:
        raise ValueError(f"codes must be int8, got {x.dtype} and {w.dtype}")
    shapes = f"x {tuple(x.shape)}, w {tuple(w.shape)}"
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1] or 0 in (*x.shape, *w.shape):
        raise ValueError(f"need x [M, K] and w [N, K], not empty: {shapes}")
    if x.shape[1] > MAX_CHANNELS:
        raise ValueError(f"{x.shape[1]} channels: sums of more than {MAX_CHANNELS} leave int32")
    if x.stride(1) != 1 or w.stride(1) != 1:
        strides = x.stride(), w.stride()
        raise ValueError(f"the last dimension must be contiguous, got strides {strides}")


def _launch(x: Tensor, w: Tensor, scales: tuple[Tensor, Tensor] | None, out: Tensor) -> Tensor:
    for tensor in (x, w, *(scales or ())):
        check_device(int8_gemm_kernel, tensor)
    (M, K), N = x.shape, w.shape[0]
    block_m = min(LARGEST_BLOCK_M, max(SMALLEST_BLOCK, triton.next_power_of_2(M)))
    int8_gemm_kernel[(triton.cdiv(M, block_m), triton.cdiv(N, BLOCK_N))](
        x, w, *(scales or (None, None)), out, M, N, K, x.stride(0), w.stride(0),
        BM=block_m, BN=BLOCK_N, BK=BLOCK_K, SCALED=scales is not None,
        num_warps=4 if block_m < LARGEST_BLOCK_M else 8,
    )  # fmt: skip
    return out


def int8_matmul(x: Tensor, w: Tensor) -> Tensor:
    """x w^T of codes, exact: x [M, K] int8, w [N, K] int8 -> [M, N] int32.

    Raises ValueError for other dtypes or shapes, or more than MAX_CHANNELS channels.
    """
    check_codes(x, w)
    out = torch.empty((x.shape[0], w.shape[0]), dtype=torch.int32, device=x.device)
    return _launch(x, w, None, out)


def w8a8_matmul(
    x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """s_m s_n x w^T in dtype: x [M, K], w [N, K] int8; x_scale [M], w_scale [N] float32.

    Raises ValueError as `int8_matmul`, or if the scales or dtype (fp16, bf16, fp32) do not fit.
    """
    check_codes(x, w)
    shapes = tuple(x_scale.shape), tuple(w_scale.shape)
    if shapes != ((x.shape[0],), (w.shape[0],)):
        raise ValueError(f"need x_scale [{x.shape[0]}] and w_scale [{w.shape[0]}], got {shapes}")
    found = x_scale.dtype, w_scale.dtype
    if found != (torch.float32, torch.float32) or dtype not in DTYPES:
        raise ValueError(f"scales float32 and dtype of {DTYPES}, got {found} and {dtype}")
    out = torch.empty((x.shape[0], w.shape[0]), dtype=dtype, device=x.device)
    return _launch(x, w, (x_scale.contiguous(), w_scale.contiguous()), out)


def compile_cases() -> list[Case]:
    """The kernel for 4096 x 4096, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensors = {"X": "*i8", "W": "*i8", "XScale": "*fp32", "WScale": "*fp32", "Out": "*fp16"}
    numbers = {"M": 4096, "N": 4096, "K": 4096, "row_x": 4096, "row_w": 4096}
    blocks = {"BM": LARGEST_BLOCK_M, "BN": BLOCK_N, "BK": BLOCK_K, "SCALED": True}
    return [Case("W8A8 GEMM", int8_gemm_kernel, tensors | numbers | blocks, {"num_warps": 8})]
