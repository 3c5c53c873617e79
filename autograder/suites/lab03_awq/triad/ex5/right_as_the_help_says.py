"""The help, line by line."""

import torch
from torch import nn


def pack_int4(codes):
    if ((codes < 0) | (codes > 15)).any():
        raise ValueError("codes must be in 0..15")
    codes = codes.to(torch.int32)
    missing = (8 - codes.shape[-1] % 8) % 8
    eight = nn.functional.pad(codes, (0, missing)).reshape(*codes.shape[:-1], -1, 8)
    words = torch.zeros_like(eight[..., 0])
    for i in range(8):
        words = words | (eight[..., i] << (4 * i))
    return words


def unpack_int4(words, length):
    codes = torch.stack([(words >> (4 * i)) & 15 for i in range(8)], dim=-1)
    return codes.flatten(-2)[..., :length].to(torch.uint8)


def w4a16_linear(x, words, scale, zero_words, bias):
    codes = unpack_int4(words, x.shape[-1])
    zero = unpack_int4(zero_words, scale.numel()).reshape(scale.shape).to(torch.int32)
    w_hat = dequantize_groups(codes, scale.float(), zero).to(x.dtype)  # noqa: F821 -- exercise 1
    y = x @ w_hat.T
    return y if bias is None else y + bias
