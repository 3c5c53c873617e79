"""Counts in int32, where the bits of a large layer do not fit."""

import torch

FAILS = ["test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = torch.tensor(shape, dtype=torch.int32)
    if granularity == "tensor":
        groups = torch.tensor(1, dtype=torch.int32)
    else:
        size = k if granularity == "channel" else granularity
        groups = n * ((k + size - 1) // size)
    return int(n * k * bits + groups * (16 if symmetric else 16 + bits))
