"""view in place of reshape: a transposed matrix raises an error."""

import torch

FAILS = ["test_packing_of_many_codes"]


def pack_codes(codes, bits):
    digits = (codes.view(-1, 1).int() >> torch.arange(bits)) & 1
    flat = torch.nn.functional.pad(digits.flatten(), (0, -digits.numel() % 8)).reshape(-1, 8)
    return (flat << torch.arange(8)).sum(1).to(torch.uint8)
