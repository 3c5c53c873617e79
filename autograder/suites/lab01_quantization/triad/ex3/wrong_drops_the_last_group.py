"""Only whole groups are quantized, the rest of the row stays in float."""

import torch

FAILS = ["test_each_group_has_its_grid", "test_ragged_last_group"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    if isinstance(granularity, int) and granularity < w.shape[1]:
        whole = w.shape[1] // granularity * granularity
        head = _right(w[:, :whole], bits, granularity, symmetric)
        return torch.cat([head, w[:, whole:].float()], dim=1)
    return _right(w, bits, granularity, symmetric)
