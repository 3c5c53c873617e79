"""All codes in one long Python number, lowest code lowest; to_bytes cuts it."""

import torch


def pack_codes(codes, bits):
    number = 0
    for code in reversed(codes.flatten().tolist()):
        number = (number << bits) | code
    length = -(-codes.numel() * bits // 8)
    return torch.tensor(list(number.to_bytes(length, "little")), dtype=torch.uint8)
