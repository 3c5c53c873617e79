"""The scale is rounded to fp16 in the round trip, because it is counted with 16 bits."""

import torch

FAILS = ["test_largest_weight_comes_back", "test_every_group_against_float64"]


def _round_trip(groups, bits, symmetric):
    lo, hi = groups.aminmax(dim=1, keepdim=True)
    scale, zero = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
    scale = scale.half().float()
    codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    return dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1


def quantize_weight(w, bits, granularity, symmetric):
    if granularity == "tensor":
        return _round_trip(w.reshape(1, -1), bits, symmetric).reshape(w.shape)
    size = w.shape[1] if granularity == "channel" else granularity
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"granularity {granularity!r}")
    blocks = [_round_trip(block, bits, symmetric) for block in w.split(size, dim=1)]
    return torch.cat(blocks, dim=1)
