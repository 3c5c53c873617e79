"""The scale is rounded to the dtype of x before the weight is decoded."""

from torch import nn

FAILS = ["test_packed_product"]


def w4a16_linear(x, words, scale, zero_words, bias):
    codes = unpack_int4(words, x.shape[-1])  # noqa: F821
    zero = unpack_int4(zero_words, scale.numel()).int().reshape(scale.shape)  # noqa: F821
    w = dequantize_groups(codes, scale.to(x.dtype).float(), zero).to(x.dtype)  # noqa: F821
    return nn.functional.linear(x, w, bias)
