"""The result is written into a buffer that the next call overwrites."""

import torch

FAILS = ["test_codes_of_each_call"]


_right = dequantize  # noqa: F821 -- the solution of exercise 1
_buffers = {}


def dequantize(codes, scale, zero):
    buffer = _buffers.setdefault(codes.shape, torch.empty(codes.shape))
    return buffer.copy_(_right(codes, scale, zero))
