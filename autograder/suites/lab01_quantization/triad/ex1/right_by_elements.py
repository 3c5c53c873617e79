"""One number at a time in Python, whose round takes ties to even."""

import torch


def _numbers(*tensors):
    return zip(*(t.flatten().tolist() for t in torch.broadcast_tensors(*tensors)), strict=True)


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = [min(max(round(v / s) + z, qmin), qmax) for v, s, z in _numbers(x, scale, zero)]
    return torch.tensor(codes, dtype=torch.int8 if symmetric else torch.uint8).reshape(x.shape)


def dequantize(codes, scale, zero):
    values = [s * (q - z) for q, s, z in _numbers(codes, scale, zero)]
    return torch.tensor(values, dtype=torch.float32).reshape(codes.shape)
