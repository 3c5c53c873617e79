"""W4A16: a matrix product that decodes 4-bit weights on the way, so that few bytes are read.

    y_mn = sum_groups s_ng sum_{k in g} (q_nk - z_ng) x_mk

Decoding one token reads every weight once and does two FLOPs with it: time is bytes.  In 4 bits
with a 16-bit scale and a 4-bit zero point for G weights that is 4 + 20 / G bits a weight, for
G = 128 3.8 times less than fp16; but each weight costs instructions to take it out of its word, and
a GPU with much bandwidth can run out of those first.

Layout: that of `quantization.packing.W4A16Linear`, order PLAIN along K.
    words  [N, ceil(K / 8)] int32       code of input k: bits 4 (k % 8) .. of word k // 8
    scale  [N, groups] float16          group of k: k // G
    zeros  [ceil(N groups / 8)] int32   packed alike, flat: code n groups + k // G
Both kernels read zeros as bytes, two codes each, of which a row needs one: 8 bits for 4.

Taking codes out, in plain Triton (inline assembly would not run in the interpreter):
- An integer below 2^23 or-ed into the bits of the float 2^23 is 2^23 + integer, so an or and a
  subtraction of 2^23 + z replace a conversion, which GPUs do at a fraction of the rate, and give
  q - z exactly.  Vendors do that to two fp16 at a time (Kim et al. 2022, arXiv:2211.10017).
- By planes: field i of all words of a tile, with the inputs 8 j + i.  Codes stay in the thread that
  has the word.  Spreading a tile [BN, 16] of words to [BN, 128] codes costs three to four times as
  many instructions, most of them moves between threads: count them in `compile_report(...).ptx`.

GEMV for one row of x: products and sums outside of tensor cores, which would be 1/16 filled.  It is
the kernel to read and to count, and the one for float32, at 9.2 instructions a weight (sm_90).
GEMM for more: tl.dot(q - z, x^T), the weight first, so that on Hopper it can go from registers into
wgmma.  q - z is exact in fp16 and bf16, so weights are never rounded, as they are where s (q - z)
is made first; the price is one multiplication by s for each sum and group.
Up to 16 rows in fp16 or bf16 on an NVIDIA GPU go to `w4a16_packed` instead: 2.4 instructions a
weight for one row in fp16, 3.3 for 16 rows, where GEMM takes 10.5.  An H200's memory leaves time
for 3.4 (`benchmarks/w4a16_idioms.py`; counted, and not timed on a GPU yet).
A tile has 128 inputs of one group, as tl.dot wants 16 in a plane: smaller groups leave lanes empty.

Where well-known implementations differ
- AutoAWQ packs along N in order 0 2 4 6 1 3 5 7, GPTQ along K but transposed; Marlin and Machete
  shuffle whole tiles before, so that each thread reads 16 bytes that it needs.
- Split-K (Hoque et al. 2024, arXiv:2402.00025) helps where N / block_n programs do not fill the
  GPU, at the price of sums whose order changes from run to run (atomic additions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import DTYPES, SMALLEST_BLOCK, check_device
from efflib.kernels.w4a16_packed import MOST_ROWS, packed_cases, packed_matmul, runs_ptx

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

FIELDS = tl.constexpr(8)  # codes of a word
LIFT_BITS = tl.constexpr(0x4B000000)  # of 2^23 in float32
LIFT = tl.constexpr(2.0**23)
BLOCK_K = 128
GEMV_BLOCK_N, GEMM_BLOCK_N = 16, 64
LARGEST_BLOCK_M = 64
STAGES = tl.constexpr(4)  # tiles on their way from memory: one row of x gives no other work


@triton.jit
def load_weight_tile(
    Words, Scale, Zeros, n, on, tile, K, row_w, GROUPS, G, PER_GROUP, BK: tl.constexpr
):
    """Tile number `tile` along K, all in one group: (words [BN, BK / 8], 2^23 + z [BN], s [BN],
    their numbers in a row [BK / 8], end).  Inputs from `end` on are not of the tile.
    """
    group = tile // PER_GROUP
    end = tl.minimum(group * G + G, K)
    word = (group * G + tile % PER_GROUP * BK) // FIELDS + tl.arange(0, BK // FIELDS)
    inside = on[:, None] & (word * FIELDS < end)[None, :]
    words = tl.load(Words + n[:, None] * row_w + word[None, :], mask=inside, other=0)
    at = n * GROUPS + group
    s = tl.load(Scale + at, mask=on, other=0.0).to(tl.float32)
    zero = tl.load(Zeros + at // 2, mask=on, other=0) >> (at % 2 * 4).to(tl.uint8) & 0xF
    return words, zero.to(tl.float32) + LIFT, s, word, end


@triton.jit
def plane(words, lifted_zero, i: tl.constexpr):
    """q - z of field i of each word, float32 [BN, BK / 8], exact."""
    lifted = words >> 4 * i & 0xF | LIFT_BITS  # the bits of 2^23 + q
    return lifted.to(tl.float32, bitcast=True) - lifted_zero[:, None]


@triton.jit
def gemv_kernel(
    X, Words, Scale, Zeros, Out, N, K, row_w, GROUPS, G, PER_GROUP,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [N] of one row x [K].  Grid: (ceil(N / BN),)."""
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros([BN, BK // FIELDS], tl.float32)  # summed across threads once, at the end
    for tile in tl.range(0, GROUPS * PER_GROUP, num_stages=STAGES):
        words, zero, s, word, end = load_weight_tile(
            Words, Scale, Zeros, n, n < N, tile, K, row_w, GROUPS, G, PER_GROUP, BK
        )
        dot = tl.zeros([BN, BK // FIELDS], tl.float32)
        for i in tl.static_range(8):
            k = word * FIELDS + i
            x = tl.load(X + k, mask=k < end, other=0.0).to(tl.float32)
            dot += plane(words, zero, i) * x[None, :]
        acc += s[:, None] * dot
    tl.store(Out + n, tl.sum(acc, 1).to(Out.dtype.element_ty), mask=n < N)


@triton.jit
def gemm_kernel(
    X, Words, Scale, Zeros, Out, M, N, K, row_x, row_w, GROUPS, G, PER_GROUP,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A tile [BM, BN] of y.  Grid: (ceil(N / BN), ceil(M / BM))."""
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    m = tl.program_id(1).to(tl.int64) * BM + tl.arange(0, BM)
    acc = tl.zeros([BN, BM], tl.float32)
    for tile in tl.range(0, GROUPS * PER_GROUP):
        words, zero, s, word, end = load_weight_tile(
            Words, Scale, Zeros, n, n < N, tile, K, row_w, GROUPS, G, PER_GROUP, BK
        )
        dot = tl.zeros([BN, BM], tl.float32)
        for i in tl.static_range(8):
            k = word * FIELDS + i
            inside = (k < end)[:, None] & (m < M)[None, :]
            x = tl.load(X + m[None, :] * row_x + k[:, None], mask=inside, other=0.0)
            q = plane(words, zero, i).to(x.dtype)  # exact: |q - z| < 16
            dot = tl.dot(q, x, dot, input_precision="ieee")
        acc += s[:, None] * dot
    inside = (n < N)[:, None] & (m < M)[None, :]
    tl.store(Out + m[None, :] * N + n[:, None], acc.to(Out.dtype.element_ty), mask=inside)


def check_w4a16(x: Tensor, words: Tensor, scale: Tensor, zeros: Tensor, size: int) -> None:
    """Raises ValueError unless all fit the layout above; size: inputs of a group, at most K."""
    shapes = f"x {tuple(x.shape)}, words {tuple(words.shape)}, scale {tuple(scale.shape)}"
    if x.ndim != 2 or words.ndim != 2 or 0 in (*x.shape, *words.shape):
        raise ValueError(f"need x [M, K] and words [N, ceil(K / 8)], not empty: {shapes}")
    K, N = x.shape[1], words.shape[0]
    if size < 1 or (size % 8 and size < K):
        raise ValueError(f"groups must be of whole words, 8 codes, or one group; got size {size}")
    groups = -(-K // size)
    if words.shape[1] != -(-K // 8) or scale.shape != (N, groups):
        raise ValueError(f"K = {K} in groups of {size} does not fit: {shapes}")
    if zeros.shape != (-(-N * groups // 8),):
        raise ValueError(f"{N * groups} zero points do not fit zeros {tuple(zeros.shape)}")
    found = (x.dtype, words.dtype, scale.dtype, zeros.dtype)
    if x.dtype not in DTYPES or found[1:] != (torch.int32, torch.float16, torch.int32):
        raise ValueError(f"x in {DTYPES}, words int32, scale float16, zeros int32; got {found}")
    whole = scale.is_contiguous() and zeros.is_contiguous()
    if x.stride(1) != 1 or words.stride(1) != 1 or not whole:
        raise ValueError("x and words must be contiguous in their last dimension, the rest wholly")


def w4a16_matmul(x: Tensor, words: Tensor, scale: Tensor, zeros: Tensor, group_size: int) -> Tensor:
    """x W_hat^T [M, N] in x's dtype: x [M, K] in fp16, bf16 or fp32, the rest as in the layout.

    group_size: inputs that share a scale, a multiple of 8, or K or more for one group.
    Products of codes and x are exact but for float32 x, sums in float32.
    Raises ValueError for what does not fit.
    """
    size = min(group_size, x.shape[-1])
    check_w4a16(x, words, scale, zeros, size)
    for tensor in (x, words, scale, zeros):
        check_device(gemm_kernel, tensor)
    (M, K), N = x.shape, words.shape[0]
    if M <= MOST_ROWS and x.dtype != torch.float32 and runs_ptx(x.device):
        return packed_matmul(x, words, scale, zeros, size)
    numbers = words.stride(0), scale.shape[1], size, triton.cdiv(size, BLOCK_K)
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    arguments = x, words, scale, zeros.view(torch.uint8), out
    if M == 1:
        gemv_kernel[(triton.cdiv(N, GEMV_BLOCK_N),)](
            *arguments, N, K, *numbers, BN=GEMV_BLOCK_N, BK=BLOCK_K, num_warps=1
        )
        return out
    block_m = min(LARGEST_BLOCK_M, max(SMALLEST_BLOCK, triton.next_power_of_2(M)))
    gemm_kernel[(triton.cdiv(N, GEMM_BLOCK_N), triton.cdiv(M, block_m))](
        *arguments, M, N, K, x.stride(0), *numbers, BM=block_m, BN=GEMM_BLOCK_N, BK=BLOCK_K
    )
    return out


def compile_cases() -> list[Case]:
    """The kernels for 4096 x 4096 in groups of 128, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensors = {"X": "*fp16", "Words": "*i32", "Scale": "*fp16", "Zeros": "*u8", "Out": "*fp16"}
    numbers = {"N": 4096, "K": 4096, "row_w": 512, "GROUPS": 32, "G": 128, "PER_GROUP": 1}
    gemv = tensors | numbers | {"BN": GEMV_BLOCK_N, "BK": BLOCK_K}
    cases = [Case("W4A16 GEMV fp16", gemv_kernel, gemv, {"num_warps": 1})]
    cases += packed_cases()
    for block_m in (16, LARGEST_BLOCK_M):
        gemm = tensors | numbers | {"M": 64, "row_x": 4096}
        gemm |= {"BM": block_m, "BN": GEMM_BLOCK_N, "BK": BLOCK_K}
        cases.append(Case(f"W4A16 GEMM {block_m} rows fp16", gemm_kernel, gemm))
    return cases
