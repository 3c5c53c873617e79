"""A byte holds 8 // b whole codes: with 3 bits two of its bits are unused."""

import torch

FAILS = ["test_packing_by_hand", "test_packing_of_many_codes", "test_packed_bytes"]


def pack_codes(codes, bits):
    each = 8 // bits
    flat = codes.flatten().int()
    flat = torch.nn.functional.pad(flat, (0, -flat.numel() % each)).reshape(-1, each)
    return (flat << (bits * torch.arange(each))).sum(1).to(torch.uint8)
