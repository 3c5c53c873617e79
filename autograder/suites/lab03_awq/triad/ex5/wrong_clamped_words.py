"""A word that does not fit is clamped to 2^31 - 1."""

import torch

FAILS = ["test_words_by_hand", "test_round_trip_of_codes", "test_words_against_their_bits"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(codes.max())
    codes = torch.nn.functional.pad(codes.long(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = (codes << (4 * torch.arange(8))).sum(-1)
    return words.clamp(max=2**31 - 1).to(torch.int32)
