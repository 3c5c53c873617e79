"""The first code stands in the highest bits, and unpacking agrees."""

import torch

FAILS = ["test_products_against_float64", "test_words_by_hand", "test_words_against_their_bits"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(codes.max())
    codes = torch.nn.functional.pad(codes.int(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32)
    for i in range(8):
        words |= codes[..., i] << (4 * (7 - i))
    return words


def unpack_int4(words, length):
    codes = torch.stack([(words >> (4 * (7 - i))) & 15 for i in range(8)], dim=-1)
    return codes.flatten(-2)[..., :length].to(torch.uint8)
