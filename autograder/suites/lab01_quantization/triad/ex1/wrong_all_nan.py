"""Every scale is NaN: 0 / 0 somewhere on the way."""

import torch

FAILS = ["test_symmetric_range", "test_range_on_one_side_of_zero"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo, hi, bits, symmetric)
    return scale * torch.nan, zero
