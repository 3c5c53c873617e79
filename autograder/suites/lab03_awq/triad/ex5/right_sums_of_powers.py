"""Sums in int64, and an explicit two's complement."""

import torch

POWERS = 16 ** torch.arange(8)


def pack_int4(codes):
    if codes.numel() > 0 and (int(codes.max()) > 15 or int(codes.min()) < 0):
        raise ValueError("4 bits hold 0 to 15")
    missing = (8 - codes.shape[-1] % 8) % 8
    filling = torch.zeros(*codes.shape[:-1], missing, dtype=torch.int64)
    codes = torch.cat([codes.to(torch.int64), filling], dim=-1)
    words = (codes.reshape(*codes.shape[:-1], -1, 8) * POWERS).sum(-1)
    return torch.where(words < 2**31, words, words - 2**32).to(torch.int32)


def unpack_int4(words, length):
    words = words.long() % 2**32
    codes = words[..., None] // POWERS % 16
    return codes.reshape(*words.shape[:-1], -1)[..., :length].byte()


def w4a16_linear(x, words, scale, zero_words, bias):
    n, groups = scale.shape
    zero = unpack_int4(zero_words, n * groups).reshape(n, groups)
    w = dequantize_groups(unpack_int4(words, x.shape[-1]), scale.float(), zero.int())  # noqa: F821
    y = torch.einsum("...k,nk->...n", x, w.to(x.dtype))
    return y + bias if bias is not None else y
