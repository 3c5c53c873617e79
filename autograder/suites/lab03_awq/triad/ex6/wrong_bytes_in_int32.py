"""Counts in int32: the bits of many large matrices do not fit."""

import torch

FAILS = ["test_bytes_by_counting"]


def weight_bytes(shapes, bits, group_size):
    total = torch.zeros((), dtype=torch.int32)
    for n, k in shapes:
        total += torch.tensor(n * k % 2**31, dtype=torch.int32) * bits
        if bits < 16:
            total += n * ((k + group_size - 1) // group_size) * (16 + bits)
    return total.item() / 8
