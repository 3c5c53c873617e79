"""The cast is left to do the clamping, and wraps around instead."""

import torch

FAILS = ["test_clipping", "test_codes_of_every_width"]


def quantize(x, scale, zero, bits, symmetric):
    codes = torch.round(x.float() / scale) + zero
    return codes.to(torch.int64).to(torch.int8 if symmetric else torch.uint8)
