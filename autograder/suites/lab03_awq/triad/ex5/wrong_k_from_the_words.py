"""K is taken from the words, which hold more codes where 8 does not divide K."""

import torch

FAILS = ["test_packed_product", "test_products_against_float64"]


def w4a16_linear(x, words, scale, zero_words, bias):
    k = 8 * words.shape[-1]
    codes = unpack_int4(words, k)
    zero = unpack_int4(zero_words, scale.numel()).int().reshape(scale.shape)
    x_padded = torch.nn.functional.pad(x.float(), (0, k - x.shape[-1]))
    y = x_padded @ dequantize_groups(codes, scale.float(), zero).T
    if bias is not None:
        y = y + bias.float()
    return y.to(x.dtype)
