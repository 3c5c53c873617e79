"""Small kernels for the chapter on the meter: arithmetic to compare, and one mistake each.

    TRITON_INTERPRET=1 python benchmarks/meter_kernels.py numbers    prints results as JSON
    TRITON_INTERPRET=1 python benchmarks/meter_kernels.py far        reads far beyond a tensor

Nothing of efflib is imported, so run like this they meet Triton's interpreter as it comes.
"""

import json
import sys

import torch
import triton
import triton.language as tl

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
FAR = 2**40  # bytes, further than any allocation


@triton.jit
def compute(X, Out, OP: tl.constexpr):
    """16 numbers of X through one operation."""
    i = tl.arange(0, 16)
    x = tl.load(X + i)
    if OP == "double":
        x = x + x
    elif OP == "sum":
        x = tl.sum(x, 0) + tl.zeros([16], x.dtype)
    elif OP == "product":  # of two matrices with x in all columns
        tile = tl.broadcast_to(x[:, None], [16, 16])
        x = tl.max(tl.dot(tile, tile), 1)
    tl.store(Out + i, x.to(Out.dtype.element_ty))


OPERATIONS = {  # label: (operation, value, type it is in, type of the result)
    "bf16, 1.5 + 1.5": ("double", 1.5, BF16, BF16),
    "bf16, sum of sixteen ones": ("sum", 1.0, BF16, BF16),
    "bf16, `tl.dot` of ones, K = 16": ("product", 1.0, BF16, torch.float32),
    "1.999 from fp32 to bf16": ("", 1.999, torch.float32, BF16),
    "1.96 from fp32 to fp8 e4m3": ("", 1.96, torch.float32, E4M3),
    "NaN from fp8 e4m3 to fp32": ("", float("nan"), E4M3, torch.float32),
}
EXPECTED = (3.0, 16.0, 16.0, 2.0, 2.0, float("nan"))


def numbers() -> dict[str, float]:
    """{label: the first of 16 equal results}."""
    results = {}
    for label, (operation, value, source, target) in OPERATIONS.items():
        x, out = torch.full((16,), value).to(source), torch.empty(16, dtype=target)
        compute[(1,)](x, out, operation)
        results[label] = out[0].float().item()
    return results


# ---- one mistake each ------------------------------------------------------------------------


@triton.jit
def double_rows(X, Out, row_x, C: tl.constexpr):
    """Row program_id(0), doubled.  Nothing says how many rows there are."""
    c = tl.arange(0, C)
    row = tl.program_id(0)
    x = tl.load(X + row * row_x + c)
    tl.store(Out + row * C + c, 2 * x)


@triton.jit
def softmax_rows(X, Out, columns, N: tl.constexpr):
    """Rows of fewer columns than lanes; the load does not say what the other lanes are."""
    c = tl.arange(0, N)
    row = tl.program_id(0) * columns
    x = tl.load(X + row + c, mask=c < columns)
    p = tl.exp(x - tl.max(x, 0))
    tl.store(Out + row + c, p / tl.sum(p, 0), mask=c < columns)


@triton.jit
def add_up(X, Total, N: tl.constexpr):
    """Every program adds its part to one number, with a load and a store."""
    part = tl.load(X + tl.program_id(0) * N + tl.arange(0, N))
    tl.store(Total, tl.load(Total) + tl.sum(part, 0))


@triton.jit
def histogram(Index, Count, N: tl.constexpr):
    """Lanes that find the same bin write over one another."""
    i = tl.arange(0, N)
    tl.store(Count + tl.load(Index + i), i + 1)


@triton.jit
def through_a_list(Addresses, Out, N: tl.constexpr):
    """Reads a tensor by an address that it found in memory."""
    x = tl.load(Addresses).to(tl.pointer_type(tl.float32))
    tl.store(Out + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


# ---- addresses: what coalescing is about -----------------------------------------------------


@triton.jit
def copy_tile(X, Out, row_x, col_x, R: tl.constexpr, C: tl.constexpr):
    """One tile of any strides into a compact one."""
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    tl.store(Out + r * C + c, tl.load(X + r * row_x + c * col_x))


if __name__ == "__main__":
    if sys.argv[1:] == ["far"]:
        double_rows[(2,)](torch.ones(1, 16), torch.ones(2, 16), FAR // 4, 16)
    print(json.dumps(numbers()))
