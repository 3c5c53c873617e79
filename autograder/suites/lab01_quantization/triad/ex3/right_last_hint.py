"""The hints, step by step."""

import math

import torch


def quantize_weight(w, bits, granularity, symmetric):
    def round_trip(groups):
        lo, hi = groups.aminmax(dim=1, keepdim=True)
        s, z = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
        codes = quantize(groups, s, z, bits, symmetric)  # noqa: F821 -- exercise 1
        return dequantize(codes, s, z)  # noqa: F821 -- exercise 1

    if granularity == "tensor":
        return round_trip(w.reshape(1, -1)).reshape(w.shape)
    if granularity == "channel":
        return round_trip(w)
    if not isinstance(granularity, int) or granularity < 1:
        raise ValueError(granularity)
    return torch.cat([round_trip(block) for block in w.split(granularity, dim=1)], dim=1)


def weight_bits(shape, bits, granularity, symmetric):
    N, K = shape
    if granularity == "tensor":
        groups = 1
    elif granularity == "channel":
        groups = N
    else:
        groups = N * math.ceil(K / granularity)
    return N * K * bits + groups * (16 if symmetric else 16 + bits)


def pack_codes(codes, bits):
    digits = (codes.reshape(-1, 1).int() >> torch.arange(bits)) & 1
    row = digits.flatten()
    row = torch.nn.functional.pad(row, (0, -len(row) % 8))
    return (row.reshape(-1, 8) << torch.arange(8)).sum(dim=1).to(torch.uint8)
