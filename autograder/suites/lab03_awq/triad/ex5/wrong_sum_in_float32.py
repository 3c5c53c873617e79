"""Adds the codes times powers of 16 in float32, which has 24 bits."""

import torch

FAILS = ["test_round_trip_of_codes", "test_words_against_their_bits"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError("codes must be in 0..15")
    codes = torch.nn.functional.pad(codes.float(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = (codes * 16.0 ** torch.arange(8)).sum(-1).long()
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
