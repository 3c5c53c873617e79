"""One small kernel for each repair of the interpreter: does it compute the right numbers?

Run as a script, without efflib and under TRITON_INTERPRET=1, this asks the stock interpreter, so
that a repair that a newer Triton no longer needs is noticed.
"""

import json

import torch
import triton
import triton.language as tl

N = 16
BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2


@triton.jit
def elementwise(X, Y, Out, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(X + i), tl.load(Y + i)
    if OP == "add":
        z = x + y
    elif OP == "negate":
        z = -x
    elif OP == "less":
        z = tl.where(x < y, x, y)
    elif OP == "clamp":
        z = tl.clamp(x, -1.0, 1.0)
    elif OP == "fma":
        z = tl.math.fma(x, y, y)
    else:
        z = x
    tl.store(Out + i, z.to(Out.dtype.element_ty))


@triton.jit
def along_axis(X, Out, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    z = tl.cumsum(x, 0) if OP == "scan" else tl.sum(x, 0) + tl.zeros([N], X.dtype.element_ty)
    tl.store(Out + i, z)


@triton.jit
def product(X, Y, Out, N: tl.constexpr):
    i = tl.arange(0, N)
    ij = i[:, None] * N + i[None, :]
    tl.store(Out + ij, tl.dot(tl.load(X + ij), tl.load(Y + ij)))


def inputs(dtype, shape=(N,)):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*shape, generator=generator).to(dtype) for _ in range(2))
    return x, y


def ran(op, x, y, dtype=None):
    out = torch.empty(N, dtype=dtype or x.dtype)
    elementwise[(1,)](x, y, out, op, N)
    return out


def ran_along(op, x):
    out = torch.empty_like(x)
    along_axis[(1,)](x, out, op, N)
    return out


def same(a, b):
    return bool(torch.equal(a.float().nan_to_num(123.0), b.float().nan_to_num(123.0)))


def close(a, b):
    """Within one rounding of bf16 (8 significant bits) of each of up to N terms."""
    return bool((a.float() - b.float()).abs().max() <= N * 2.0**-8 * b.float().abs().max())


def bf16_probes() -> dict[str, bool]:
    x, y = inputs(BF16)
    a, b = inputs(BF16, (N, N))
    out = torch.empty(N, N)
    product[(1,)](a, b, out, N)
    wide, ulp = torch.randn(N), 2.0**-7
    tie = 1 + ulp / 2 + torch.arange(N) * ulp  # halfway between two neighbours
    whole = torch.arange(N, dtype=torch.int32) - 7
    return {
        "bf16 add": same(ran("add", x, y), x + y),
        "bf16 negate": same(ran("negate", x, y), -x),
        "bf16 compare": same(ran("less", x, y), torch.minimum(x, y)),
        "bf16 clamp": same(ran("clamp", x, y), x.clamp(-1, 1)),
        "bf16 fma": close(ran("fma", x, y), x.double() * y.double() + y.double()),
        "bf16 sum": close(ran_along("sum", x), x.double().sum().expand(N)),
        "bf16 scan": close(ran_along("scan", x), x.double().cumsum(0)),
        "bf16 dot": close(out, a.double() @ b.double()),
        "fp32 to bf16": all(same(ran("", w, w, BF16), w.to(BF16)) for w in (wide, tie)),
        "int to bf16": same(ran("", whole, whole, BF16), whole.to(BF16)),
    }


def fp8_probes() -> dict[str, bool]:
    results = {}
    for name, dtype in (("e4m3", E4M3), ("e5m2", E5M2)):
        largest = torch.finfo(dtype).max
        x = torch.tensor([1.96, 7.9, -0.99, 3.96, 1e-3, 0.0, -15.7, 0.3] * 2)
        big = torch.tensor([1e9, -1e9, largest, torch.inf] * 4)
        x_nan = torch.tensor([torch.nan, 1.0] * 8)
        results[f"fp32 to fp8 {name}"] = same(ran("", x, x, dtype), x.to(dtype))
        saturated = big.clamp(-largest, largest)
        results[f"fp32 to fp8 {name}, too large"] = same(ran("", big, big, dtype), saturated)
        code = x_nan.to(dtype)
        results[f"NaN of fp8 {name}"] = same(ran("", code, code, torch.float32), x_nan)
    return results


def probe() -> dict[str, bool]:
    return bf16_probes() | fp8_probes()


if __name__ == "__main__":
    print(json.dumps(probe()))
