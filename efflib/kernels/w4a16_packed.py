"""W4A16 for few rows in 16 bits: codes taken two at a time by inline PTX, then tensor cores.

    y_mn = sum_groups s_ng sum_{k in g} (q_nk - z_ng) x_mk          (layout: `efflib.kernels.w4a16`)

A GPU that reads 4-bit weights at full speed has few clocks for each: an H200 3.4 instructions, and
the readable kernel of `efflib.kernels.w4a16` takes 9.2, this one 2.4 in fp16 and 2.6 in bf16
(`benchmarks/w4a16_idioms.py` counts them without a GPU and compares the idioms).

Taking codes out.  A word is two half-words of four codes: one 32-bit operation works on field i of
both.  lop3 computes any function of three bits, here (a & mask) | bits, in one instruction:
- fp16: (h & 0x000F) | 0x6400 are the bits of 1024 + q, (h & 0x00F0) | 0x6400 those of 1024 + 16 q.
  A subtraction of 1024 + z and an fma by 1/16 and -(64 + z) give q - z, exactly: all numbers
  in between have at most 11 bits.  One shift by 8, four lop3, four additions: 9 for 8 weights.
- bf16 has 8 bits: (h & 0x000F) | 0x4300 are the bits of 128 + q, and the other three fields have to
  be shifted there: 11 for 8 weights.  The subtraction is an fma by 1, which an A100 has too.
The bits of 1024 and of 128 are from FasterTransformer (Kim et al. 2022, arXiv:2211.10017, in its
interleaved_numeric_conversion.h), whence AWQ's kernels (llm-awq) and Marlin (Frantar et al. 2024,
arXiv:2408.11743) have them.  They first reorder the codes, so that the two of an operation are
neighbours in x; here x is taken apart instead, which a program does once for all its rows.

Products.  (q - z) x has up to 16 bits and must not be rounded to fp16, where it can also overflow;
widening it to float32 would cost two instructions a weight.  A tensor core multiplies exactly and
sums in float32 (it cuts off where others round: Fasi et al. 2021, PeerJ Computer Science 7:e330), 8
weights in an instruction of each thread.  It takes 8 columns or more, so that 8 rows of x cost
little more than one; one row alone stands in all of them, and 7 results are not stored.

Shape of the work.  Half-words stay what they are: field i of all of them is a matrix [BN, BK / 4],
with the inputs 4 j + i of x.  P tiles along K, each of one group, are a batch of products: that
gives each warp its own tile and 4 times as many warps as rows of W alone would.  Each program reads
all of x: M / 8 times the bytes of its codes, from the L2 cache, which ends at 16 rows here.

The interpreter has no inline PTX; with PTX=False the same kernel uses shifts and conversions.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

BLOCK_N, BLOCK_K, TILES = 32, 128, 4
LEAST_ROWS, MOST_ROWS = 8, 16  # of x in a tile; 8: the columns of mma.m16n8k16
STAGES = tl.constexpr(4)  # steps on their way from memory
WARPS = TILES  # a batch of products is spread over warps

# $0 .. $3: q - z of fields 0 .. 3 of two half-words; $4: the half-words.  0xEA is (a & b) | c
FP16_CODES = tl.constexpr("""{
    .reg .b32 high, sixteenth;
    shr.u32 high, $4, 8;
    mov.b32 sixteenth, 0x2C002C00;
    lop3.b32 $0, $4, 0x000F000F, 0x64006400, 0xEA;
    lop3.b32 $1, $4, 0x00F000F0, 0x64006400, 0xEA;
    lop3.b32 $2, high, 0x000F000F, 0x64006400, 0xEA;
    lop3.b32 $3, high, 0x00F000F0, 0x64006400, 0xEA;
    add.rn.f16x2 $0, $0, $5;
    fma.rn.f16x2 $1, $1, sixteenth, $6;
    add.rn.f16x2 $2, $2, $5;
    fma.rn.f16x2 $3, $3, sixteenth, $6;
}""")  # $5: -(1024 + z), $6: -(64 + z)
BF16_CODES = tl.constexpr("""{
    .reg .b32 one, h1, h2, h3;
    mov.b32 one, 0x3F803F80;
    shr.u32 h1, $4, 4;
    shr.u32 h2, $4, 8;
    shr.u32 h3, $4, 12;
    lop3.b32 $0, $4, 0x000F000F, 0x43004300, 0xEA;
    lop3.b32 $1, h1, 0x000F000F, 0x43004300, 0xEA;
    lop3.b32 $2, h2, 0x000F000F, 0x43004300, 0xEA;
    lop3.b32 $3, h3, 0x000F000F, 0x43004300, 0xEA;
    fma.rn.bf16x2 $0, $0, one, $5;
    fma.rn.bf16x2 $1, $1, one, $5;
    fma.rn.bf16x2 $2, $2, one, $5;
    fma.rn.bf16x2 $3, $3, one, $5;
}""")  # $5: -(128 + z)


@triton.jit
def code_planes(halves, zero, T: tl.constexpr, PTX: tl.constexpr):
    """q - z of the four fields of each half-word, four tensors of type T like halves.

    halves [P, BN, BK / 4] int16, zero [P, BN] float32.
    """
    shape: tl.constexpr = halves.shape
    if PTX and T == tl.float16:
        low = tl.broadcast_to((-1024.0 - zero).to(T)[:, :, None], shape)
        high = tl.broadcast_to((-64.0 - zero).to(T)[:, :, None], shape)
        q0, q1, q2, q3 = tl.inline_asm_elementwise(
            FP16_CODES, "=&r,=&r,=&r,=&r,r,r,r", [halves, low, high],
            (tl.float16, tl.float16, tl.float16, tl.float16), True, 2,
        )  # fmt: skip
    elif PTX:
        low = tl.broadcast_to((-128.0 - zero).to(T)[:, :, None], shape)
        q0, q1, q2, q3 = tl.inline_asm_elementwise(
            BF16_CODES, "=&r,=&r,=&r,=&r,r,r", [halves, low],
            (tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16), True, 2,
        )  # fmt: skip
    else:
        z = zero[:, :, None]
        q0 = ((halves & 0xF).to(tl.float32) - z).to(T)
        q1 = ((halves >> 4 & 0xF).to(tl.float32) - z).to(T)
        q2 = ((halves >> 8 & 0xF).to(tl.float32) - z).to(T)
        q3 = ((halves >> 12 & 0xF).to(tl.float32) - z).to(T)
    return q0, q1, q2, q3


@triton.jit
def input_planes(X, m, M, row_x, j, inside, ONE: tl.constexpr):
    """x of the inputs 4 j + i, i = 0 .. 3: four tensors [P, J, rows].

    m: rows; j [P, J]; inside [P, J, 4]; ONE: there is one row, repeated.
    """
    shape: tl.constexpr = [j.shape[0], j.shape[1], m.shape[0], 2, 2]
    i = tl.arange(0, 4)
    if ONE:
        x = tl.load(X + 4 * j[:, :, None] + i, mask=inside, other=0.0)
        x = tl.broadcast_to(x[:, :, None, :], [shape[0], shape[1], shape[2], 4])
    else:
        k = 4 * j[:, :, None, None] + i
        inside = inside[:, :, None, :] & (m < M)[None, None, :, None]
        x = tl.load(X + m[None, None, :, None] * row_x + k, mask=inside, other=0.0)
    even, odd = tl.split(tl.reshape(x, shape))  # by i % 2, [P, J, rows, 2]
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def packed_kernel(
    X, Words, Scale, Zeros, Out, M, N, K, row_x, row_w, GROUPS, HALVES, PER_GROUP,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr,
    ONE: tl.constexpr, WHOLE: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Columns [BM, BN] of y, M <= BM.  Grid: (ceil(N / BN),).  HALVES: half-words of a group.

    ONE: M is 1.  WHOLE: no tile ends early.
    """
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    m = tl.arange(0, BM).to(tl.int64)
    halves_at = Words.to(tl.pointer_type(tl.int16)) + n[None, :, None] * (2 * row_w)
    acc = tl.zeros([P, BN, BM], tl.float32)
    for first in tl.range(0, GROUPS * PER_GROUP, P, num_stages=STAGES):
        tile = first + tl.arange(0, P)
        group = tile // PER_GROUP
        j = (group * HALVES + tile % PER_GROUP * (BK // 4))[:, None]
        j += tl.arange(0, BK // 4)[None, :]  # [P, BK / 4]
        tile_on = (tile < GROUPS * PER_GROUP)[:, None]
        row_on = tile_on & (n < N)[None, :]  # [P, BN]
        if WHOLE:
            halves_on, inputs_on = row_on[:, :, None], tile_on[:, :, None]
        else:
            end = tl.minimum((group + 1) * HALVES * 4, K)[:, None]
            halves_on = row_on[:, :, None] & (4 * j < end)[:, None, :]
            k = 4 * j[:, :, None] + tl.arange(0, 4)
            inputs_on = tile_on[:, :, None] & (k < end[:, :, None])
        halves = tl.load(halves_at + j[:, None, :], mask=halves_on, other=0)
        at = n[None, :] * GROUPS + group[:, None]
        s = tl.load(Scale + at, mask=row_on, other=0.0).to(tl.float32)
        zero = tl.load(Zeros + at // 2, mask=row_on, other=0) >> (at % 2 * 4).to(tl.uint8) & 0xF
        q0, q1, q2, q3 = code_planes(halves, zero.to(tl.float32), X.dtype.element_ty, PTX)
        x0, x1, x2, x3 = input_planes(X, m, M, row_x, j, inputs_on, ONE)
        dot = tl.dot(q1, x1, tl.dot(q0, x0))
        dot = tl.dot(q3, x3, tl.dot(q2, x2, dot))
        acc += s[:, :, None] * dot
    stored = (n < N)[:, None] & (m < M)[None, :]
    y = tl.sum(acc, 0).to(Out.dtype.element_ty)
    tl.store(Out + m[None, :] * N + n[:, None], y, mask=stored)


@cache
def runs_ptx(device: torch.device) -> bool:
    """Whether kernels are compiled, and for an NVIDIA GPU with bf16: A100 or later."""
    compiled = isinstance(packed_kernel, triton.JITFunction) and device.type == "cuda"
    nvidia = compiled and torch.version.hip is None
    return nvidia and torch.cuda.get_device_capability(device) >= (8, 0)


def packed_matmul(
    x: Tensor, words: Tensor, scale: Tensor, zeros: Tensor, size: int, ptx: bool = True
) -> Tensor:
    """x W_hat^T [M, N] for x [M, K] in fp16 or bf16, M <= MOST_ROWS; checked by `w4a16_matmul`.

    size: inputs of a group, at most K; ptx: False for the interpreter.
    """
    (M, K), (N, groups) = x.shape, scale.shape
    block_k = BLOCK_K if size > BLOCK_K // 2 else BLOCK_K // 2
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    packed_kernel[(triton.cdiv(N, BLOCK_N),)](
        x, words, scale, zeros.view(torch.uint8), out, M, N, K, x.stride(0), words.stride(0),
        groups, triton.cdiv(size, 4), triton.cdiv(size, block_k),
        BM=LEAST_ROWS if M <= LEAST_ROWS else MOST_ROWS, BN=BLOCK_N, BK=block_k, P=TILES,
        ONE=M == 1, WHOLE=size % block_k == 0 and K % size == 0, PTX=ptx, num_warps=WARPS,
    )  # fmt: skip
    return out


def packed_cases() -> list[Case]:
    """The kernel for 4096 x 4096 in groups of 128: one row in both types, up to 8 and 16 rows."""
    from efflib.meter.compiling import Case

    numbers = {"N": 4096, "K": 4096, "row_w": 512, "GROUPS": 32, "HALVES": 32, "PER_GROUP": 1}
    numbers |= {"row_x": 4096, "BN": BLOCK_N, "BK": BLOCK_K, "P": TILES}
    cases = []
    for rows, dtype in ((1, "fp16"), (1, "bf16"), (LEAST_ROWS, "fp16"), (MOST_ROWS, "fp16")):
        tensors = {"X": f"*{dtype}", "Words": "*i32", "Scale": "*fp16", "Zeros": "*u8"}
        arguments = tensors | {"Out": f"*{dtype}", "M": rows} | numbers
        arguments |= {"BM": max(rows, LEAST_ROWS), "ONE": rows == 1, "WHOLE": True, "PTX": True}
        name = f"W4A16 packed, {rows} {'row' if rows == 1 else 'rows'} {dtype}"
        cases.append(Case(name, packed_kernel, arguments, {"num_warps": WARPS}))
    return cases
