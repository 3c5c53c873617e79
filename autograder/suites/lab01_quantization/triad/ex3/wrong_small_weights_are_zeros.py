"""A group whose range is below 1e-5 counts as a group of zeros."""

import torch

FAILS = ["test_every_group_against_float64"]


def quantize_weight(w, bits, granularity, symmetric):
    def round_trip(groups):
        lo, hi = groups.aminmax(dim=1, keepdim=True)
        scale, zero = affine_parameters(lo, hi, bits, symmetric)  # noqa: F821 -- exercise 1
        codes = quantize(groups, scale, zero, bits, symmetric)  # noqa: F821
        values = dequantize(codes, scale, zero)  # noqa: F821
        return torch.where(hi - lo < 1e-5, 0.0, values)

    if granularity == "tensor":
        return round_trip(w.reshape(1, -1)).reshape(w.shape)
    size = w.shape[1] if granularity == "channel" else granularity
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"granularity {granularity!r}")
    return torch.cat([round_trip(block) for block in w.split(size, dim=1)], dim=1)
