"""Unpacking without & 15: what stands above comes along."""

import torch

FAILS = [
    "test_round_trip_of_codes",
    "test_words_against_their_bits",
    "test_products_against_float64",
]


def unpack_int4(words, length):
    codes = torch.stack([words >> (4 * i) for i in range(8)], dim=-1)
    return codes.flatten(-2)[..., :length].clamp(0, 15).to(torch.uint8)
