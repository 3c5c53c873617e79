"""Byte by byte, with what is left over carried on."""

import torch


def pack_codes(codes, bits):
    packed, left, filled = [], 0, 0
    for code in codes.reshape(-1).tolist():
        left, filled = left | code << filled, filled + bits
        while filled >= 8:
            packed, left, filled = [*packed, left & 255], left >> 8, filled - 8
    return torch.tensor(packed + [left] * (filled > 0), dtype=torch.uint8)
