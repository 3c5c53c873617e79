"""The last group is made full by reaching back into the group before it."""

import torch

FAILS = ["test_ragged_last_group", "test_every_group_against_float64"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    if isinstance(granularity, int) and granularity < w.shape[1] and w.shape[1] % granularity:
        whole = w.shape[1] // granularity * granularity
        tail = _right(w[:, -granularity:], bits, "channel", symmetric)  # overlaps its neighbour
        head = _right(w[:, :whole], bits, granularity, symmetric)
        return torch.cat([head, tail[:, whole - w.shape[1] :]], dim=1)
    return _right(w, bits, granularity, symmetric)
