"""Two codes to a byte, and four bytes seen as a word."""

import torch


def pack_int4(codes):
    if codes.numel() and not bool(((codes >= 0) & (codes < 16)).all()):
        raise ValueError("a code is outside 0..15")
    lead, length = codes.shape[:-1], codes.shape[-1]
    filled = torch.zeros(*lead, (length + 7) // 8 * 8, dtype=torch.uint8)
    filled[..., :length] = codes.to(torch.uint8)
    pairs = filled[..., 0::2] + 16 * filled[..., 1::2]  # low half first, as the machine stores
    return pairs.contiguous().view(torch.int32)


def unpack_int4(words, length):
    pairs = words.contiguous().view(torch.uint8)
    codes = torch.stack([pairs % 16, pairs // 16], dim=-1)
    return codes.reshape(*words.shape[:-1], -1)[..., :length].contiguous()


def w4a16_linear(x, words, scale, zero_words, bias):
    zero = unpack_int4(zero_words, scale.shape[0] * scale.shape[1]).view(scale.shape)
    size = x.shape[-1] // scale.shape[1]
    codes = unpack_int4(words, x.shape[-1]).float()
    step, z = (t.float().repeat_interleave(size, dim=1) for t in (scale, zero))
    y = x.float() @ ((codes - z) * step).T
    if bias is not None:
        y = y + bias.float()
    return y.to(x.dtype)
