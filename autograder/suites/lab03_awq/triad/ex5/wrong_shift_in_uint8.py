"""Codes are shifted in their own dtype: uint8 loses the upper bits."""

import torch

FAILS = ["test_round_trip_of_codes", "test_words_against_their_bits"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(codes.max())
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32)
    for i in range(8):
        words |= (codes[..., i] << (4 * i)).int()
    return words
