"""Pads the last group with zeros, which every grid of the lab contains, and takes all groups at
once."""

import torch.nn.functional as F


def quantize_weight(w, bits, granularity, symmetric):
    n, k = w.shape
    if granularity == "tensor":
        groups = w.float().flatten()[None, None]
    else:
        size = k if granularity == "channel" else granularity
        if type(size) is not int or size <= 0:
            raise ValueError(f"granularity {granularity!r}")
        groups = F.pad(w.float(), (0, -k % size)).unflatten(1, (-1, size))
    scale, zero = affine_parameters(  # noqa: F821 -- exercise 1
        groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True), bits, symmetric
    )
    codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    values = dequantize(codes, scale, zero).flatten(1)  # noqa: F821 -- exercise 1
    return values.reshape(n, k) if granularity == "tensor" else values[:, :k]


def weight_bits(shape, bits, granularity, symmetric):
    rows, columns = shape
    if granularity == "tensor":
        groups = 1
    else:
        size = columns if granularity == "channel" else granularity
        groups = rows * ((columns + size - 1) // size)
    return rows * columns * bits + 16 * groups + (bits * groups if not symmetric else 0)
