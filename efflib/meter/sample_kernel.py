"""A tiled matrix product C = A B, to try the meter and the compiler on.

Each program makes one tile [BM, BN] of C and walks along K, so A is read once per column of tiles
and B once per row of tiles:

    bytes = M K ceil(N / BN) + K N ceil(M / BM) elements read,  M N written
"""

from __future__ import annotations

# isort: off
import efflib.meter.interpreter  # noqa: F401  before triton is imported

# isort: on
import torch
import triton
import triton.language as tl

from efflib.meter.compiling import Case


@triton.jit
def matmul_kernel(
    A, B, C, M, N, K, row_a, row_b, row_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]  # [BM, 1]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]  # [1, BN]
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + m * row_a + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(B + k[:, None] * row_b + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + m * row_c + n, acc.to(C.dtype.element_ty), mask=(m < M) & (n < N))


def compile_cases() -> list[Case]:
    """The kernel as it would be launched for 4096 x 4096 in fp16."""
    a, b, c = (torch.empty(4096, 4096, dtype=torch.float16, device="meta") for _ in range(3))
    sizes = {"M": 4096, "N": 4096, "K": 4096, "row_a": 4096, "row_b": 4096, "row_c": 4096}
    blocks = {"BM": 128, "BN": 128, "BK": 64}
    options = {"num_warps": 8, "num_stages": 3}
    return [Case("matmul fp16", matmul_kernel, {"A": a, "B": b, "C": c} | sizes | blocks, options)]
