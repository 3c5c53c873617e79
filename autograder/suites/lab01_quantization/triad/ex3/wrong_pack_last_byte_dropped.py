"""What does not fill a byte is dropped."""

import torch

FAILS = ["test_packing_by_hand", "test_packing_of_many_codes", "test_packed_bytes"]


def pack_codes(codes, bits):
    digits = (codes.flatten()[:, None].int() >> torch.arange(bits)) & 1
    digits = digits.flatten()[: digits.numel() // 8 * 8].reshape(-1, 8)
    return (digits << torch.arange(8)).sum(1).to(torch.uint8)
