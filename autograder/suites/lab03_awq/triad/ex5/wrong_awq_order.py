"""The order of another format, 0 2 4 6 1 3 5 7."""

import torch

FAILS = ["test_products_against_float64", "test_words_by_hand", "test_words_against_their_bits"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(codes.max())
    codes = torch.nn.functional.pad(codes.int(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32)
    for i, j in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        words |= codes[..., j] << (4 * i)
    return words


def unpack_int4(words, length):
    codes = torch.stack([(words >> (4 * i)) & 15 for i in (0, 4, 1, 5, 2, 6, 3, 7)], dim=-1)
    return codes.flatten(-2)[..., :length].to(torch.uint8)
