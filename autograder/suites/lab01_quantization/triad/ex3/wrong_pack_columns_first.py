"""The codes are read column by column."""

import torch

FAILS = ["test_packing_of_many_codes", "test_packed_bytes"]


def pack_codes(codes, bits):
    codes = codes.permute(*reversed(range(codes.ndim)))
    digits = (codes.flatten()[:, None].int() >> torch.arange(bits)) & 1
    flat = torch.nn.functional.pad(digits.flatten(), (0, -digits.numel() % 8)).reshape(-1, 8)
    return (flat << torch.arange(8)).sum(1).to(torch.uint8)
