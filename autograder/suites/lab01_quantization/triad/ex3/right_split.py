"""Blocks of columns by split, each rounded by one helper; digits of codes moved into bytes."""

import math

import torch


def _round_trip(groups, bits, symmetric):
    lo, hi = groups.aminmax(dim=1, keepdim=True)
    scale, zero = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
    codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    return dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1


def quantize_weight(w, bits, granularity, symmetric):
    if granularity == "tensor":
        return _round_trip(w.reshape(1, -1), bits, symmetric).reshape(w.shape)
    size = w.shape[1] if granularity == "channel" else granularity
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"granularity {granularity!r}")
    blocks = [_round_trip(block, bits, symmetric) for block in w.split(size, dim=1)]
    return torch.cat(blocks, dim=1)


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = k if granularity == "channel" else granularity
    groups = 1 if granularity == "tensor" else n * math.ceil(k / size)
    return n * k * bits + groups * (16 if symmetric else 16 + bits)


def pack_codes(codes, bits):
    digits = (codes.flatten()[:, None].int() >> torch.arange(bits)) & 1
    flat = torch.nn.functional.pad(digits.flatten(), (0, -digits.numel() % 8)).reshape(-1, 8)
    return (flat << torch.arange(8)).sum(1).to(torch.uint8)
