"""Eight codes make b whole bytes: a 64-bit number for each eight."""

import math

import torch


def pack_codes(codes, bits):
    flat = codes.flatten().to(torch.int64)
    length = math.ceil(flat.numel() * bits / 8)
    flat = torch.cat([flat, flat.new_zeros(-flat.numel() % 8)]).reshape(-1, 8)
    words = sum(flat[:, i] << (bits * i) for i in range(8))
    parts = [(words >> (8 * j)) & 255 for j in range(bits)]
    return torch.stack(parts, dim=1).flatten()[:length].to(torch.uint8)
