"""What is no granularity is left to split to complain about."""

import torch

FAILS = ["test_views_bfloat16_and_no_granularity", "test_awkward_weights"]


def _round_trip(groups, bits, symmetric):
    lo, hi = groups.aminmax(dim=1, keepdim=True)
    scale, zero = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
    codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    return dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1


def quantize_weight(w, bits, granularity, symmetric):
    if granularity == "tensor":
        return _round_trip(w.reshape(1, -1), bits, symmetric).reshape(w.shape)
    size = w.shape[1] if granularity == "channel" else granularity
    blocks = [_round_trip(block, bits, symmetric) for block in w.split(size, dim=1)]
    return torch.cat(blocks, dim=1)
