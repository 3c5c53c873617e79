"""NF4 in Triton: decode `quantization.nf4.NF4Weight`, scales and all, in one pass.

    a_b = dynamic[code_b] second[b // 256] + mean       scale of block b (double quantization)
    w_i = levels[code_i] a_{i // 64}

PyTorch does this in a handful of operations, each of which writes a tensor of the size of the
weight: codes, int64 indices, levels, products.  One kernel reads 4 bits and writes one value:

    bytes = n / 2 + scales + n itemsize,   against about 30 n in the operations of dequantize_nf4

Equal to `dequantize_nf4` bit by bit, which takes care at one place: dynamic * second + mean are two
roundings there, and a compiler would make one of them (a fused multiply-add).  So fusion is off.

The levels are no grid, so they are looked up.  Each program reads the 16 of them once and gathers
from registers; bitsandbytes walks a tree of comparisons or keeps the table in shared memory.
Layout and sources: see `quantization.nf4`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from efflib.kernels.flash_attention import DTYPES, check_device
from efflib.quantization.nf4 import (
    BLOCK,
    SCALE_BLOCK,
    NF4Weight,
    Scales,
    dynamic_codebook,
    nf4_codebook,
)

if TYPE_CHECKING:
    from efflib.meter.compiling import Case

BLOCKS = 16  # of a program
TWO_ROUNDINGS = {"enable_fp_fusion": False}  # no fused multiply-add


@triton.jit
def nf4_kernel(
    Packed, Levels, A, Dynamic, Second, Mean, Out, n, blocks,
    BLOCK: tl.constexpr, SCALE_BLOCK: tl.constexpr, BLOCKS: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of BLOCK weights.  Grid: (ceil(blocks / BLOCKS),).  A: scales, or codes."""
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    on = block < blocks
    if DOUBLE:
        code = tl.load(A + block, mask=on, other=0).to(tl.int32)
        level = tl.load(Dynamic + code, mask=on, other=0.0)
        second = tl.load(Second + block // SCALE_BLOCK, mask=on, other=0.0)
        a = level * second + tl.load(Mean)  # [BLOCKS]
    else:
        a = tl.load(A + block, mask=on, other=0.0)
    byte = block[:, None] * (BLOCK // 2) + tl.arange(0, BLOCK // 2)[None, :]
    packed = tl.load(Packed + byte, mask=byte < (n + 1) // 2, other=0)  # [BLOCKS, BLOCK / 2]
    # the even element is the high half
    codes = tl.interleave(packed >> 4, packed & 0xF).to(tl.int32)  # [BLOCKS, BLOCK]
    levels = tl.load(Levels + tl.arange(0, 16))
    values = tl.gather(levels, tl.reshape(codes, [BLOCKS * BLOCK]), 0)
    w = tl.reshape(values, [BLOCKS, BLOCK]) * a[:, None]
    at = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(Out + at, w.to(Out.dtype.element_ty), mask=at < n)


def check_nf4(
    packed: Tensor, a: Tensor, second: Tensor | None, mean: Tensor | None, shape: list[int]
) -> None:
    """Raises ValueError unless codes and scales are those of a tensor of this shape."""
    n = math.prod(shape)
    blocks = -(-n // BLOCK)
    parts, want = [packed, a], [(-(-n // 2),), (blocks,)]
    types = [torch.uint8, torch.float32]
    if second is not None or mean is not None:
        parts += [second, mean]
        want += [(-(-blocks // SCALE_BLOCK),), ()]
        types = [torch.uint8, torch.uint8, torch.float32, torch.float32]
    found = [None if t is None else tuple(t.shape) for t in parts]
    if n == 0 or found != want:
        raise ValueError(f"shape {tuple(shape)} needs codes and scales {want}, got {found}")
    if [t.dtype for t in parts] != types or not all(t.is_contiguous() for t in parts):
        found = [t.dtype for t in parts]
        raise ValueError(f"codes and scales must be {types}, contiguous; got {found}")


def nf4_values(
    packed: Tensor,
    a: Tensor,
    second: Tensor | None,
    mean: Tensor | None,
    shape: list[int],
    dtype: torch.dtype,
) -> Tensor:
    """The weight of the parts of an `NF4Weight`; see `dequantize_nf4_triton`.

    a: [blocks] float32; or their codes [blocks] uint8, with second and mean.
    """
    check_nf4(packed, a, second, mean, shape)
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {DTYPES}, got {dtype}")
    for tensor in (packed, a) if second is None else (packed, a, second, mean):
        check_device(nf4_kernel, tensor)
    out = torch.empty(shape, dtype=dtype, device=packed.device)
    double = second is not None
    dynamic = dynamic_codebook().to(packed.device) if double else None
    nf4_kernel[(triton.cdiv(len(a), BLOCKS),)](
        packed, nf4_codebook().to(packed.device), a, dynamic, second, mean, out, out.numel(),
        len(a), BLOCK=BLOCK, SCALE_BLOCK=SCALE_BLOCK, BLOCKS=BLOCKS, DOUBLE=double,
        **TWO_ROUNDINGS,
    )  # fmt: skip
    return out


def dequantize_nf4_triton(q: NF4Weight, dtype: torch.dtype = torch.float32) -> Tensor:
    """The tensor that the codes stand for: `dequantize_nf4(q).to(dtype)` bit by bit.

    dtype: fp16, bf16 or fp32.  Raises ValueError for others, or codes that do not fit q.shape.
    """
    if isinstance(q.scales, Scales):
        return nf4_values(q.packed, *q.scales, list(q.shape), dtype)
    return nf4_values(q.packed, q.scales, None, None, list(q.shape), dtype)


def compile_cases() -> list[Case]:
    """The kernel for a doubly quantized weight, for `python -m efflib.meter compile`."""
    from efflib.meter.compiling import Case

    tensors = {"Packed": "*u8", "A": "*u8", "Out": "*bf16"}
    tensors |= dict.fromkeys(("Levels", "Dynamic", "Second", "Mean"), "*fp32")
    numbers = {"n": 2**24, "blocks": 2**18, "BLOCK": BLOCK, "SCALE_BLOCK": SCALE_BLOCK}
    arguments = tensors | numbers | {"BLOCKS": BLOCKS, "DOUBLE": True}
    return [Case("NF4 decode bf16", nf4_kernel, arguments, TWO_ROUNDINGS)]
