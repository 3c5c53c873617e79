"""Packed weights, codes and scales for the tests of kernels that read them."""

import torch
from rounding import U

from efflib.quantization.linear import quantize_weight
from efflib.quantization.packing import W4A16Linear


def layer(N, K, granularity, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return W4A16Linear(quantize_weight(torch.randn(N, K, generator=generator), 4, granularity))


def rows(M, K, dtype=torch.float32, seed=1):
    return torch.randn(M, K, generator=torch.Generator().manual_seed(seed)).to(dtype)


def size(linear):
    return linear.shape[1] if linear.granularity == "channel" else linear.granularity


def error_bound(x, w, y):
    """Largest |y - exact y|, elementwise: K + 4 roundings in float32 on the way, one of the result.

    q - z is exact, q - z times x of 16 bits too; s, the sums in and over the groups are rounded.
    """
    sums = (w.shape[1] + 4) * 2.0**-24 * (x.double().abs() @ w.double().abs().T)
    return sums + U[x.dtype] * (y.abs() + sums)


def codes(M, K, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, (M, K), generator=generator, dtype=torch.int8)


def steps(n, seed=2):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)) * 0.1 + 1e-3


def weight(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same_bits(a, b):
    integer = {2: torch.int16, 4: torch.int32}[a.itemsize]
    return a.dtype == b.dtype and torch.equal(a.view(integer), b.view(integer))
