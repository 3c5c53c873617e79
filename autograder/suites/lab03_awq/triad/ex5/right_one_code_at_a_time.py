"""Python integers, one code at a time; the product in float64."""

import torch


def pack_int4(codes):
    rows = codes.reshape(-1, codes.shape[-1]).tolist()
    words = []
    for row in rows:
        if any(not 0 <= code <= 15 for code in row):
            raise ValueError("0..15")
        for start in range(0, len(row), 8):
            word = sum(code * 16**i for i, code in enumerate(row[start : start + 8]))
            words.append(word - 2**32 if word >= 2**31 else word)
    return torch.tensor(words, dtype=torch.int32).reshape(*codes.shape[:-1], -1)


def unpack_int4(words, length):
    rows = [
        [(word >> shift) & 0xF for word in row for shift in range(0, 32, 4)][:length]
        for row in words.reshape(-1, words.shape[-1]).tolist()
    ]
    return torch.tensor(rows, dtype=torch.uint8).reshape(*words.shape[:-1], length)


def w4a16_linear(x, words, scale, zero_words, bias):
    zero = unpack_int4(zero_words, scale.numel()).reshape(scale.shape).int()
    w_hat = dequantize_groups(unpack_int4(words, x.shape[-1]), scale.float(), zero)  # noqa: F821
    y = x.double() @ w_hat.to(x.dtype).double().T
    return (y if bias is None else y + bias.double()).to(x.dtype)
