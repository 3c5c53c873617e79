"""Pads the last group with copies of the last value of the row, which keep its range."""

import torch


def quantize_weight(w, bits, granularity, symmetric):
    n, k = w.shape
    if granularity == "tensor":
        size, rows = n * k, 1
    elif granularity == "channel":
        size, rows = k, n
    elif isinstance(granularity, int) and granularity > 0:
        size, rows = min(granularity, k), n
    else:
        raise ValueError(f"granularity {granularity!r}")
    flat = w.float().reshape(rows, -1)
    missing = -flat.shape[1] % size
    groups = torch.cat([flat, flat[:, -1:].repeat(1, missing)], 1).reshape(rows, -1, size)
    lo, hi = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale, zero = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
    codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    values = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    return values.reshape(rows, -1)[:, : flat.shape[1]].reshape(n, k).contiguous()


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else n * -(-k // size)
    return bits * n * k + 16 * groups + (0 if symmetric else bits * groups)
