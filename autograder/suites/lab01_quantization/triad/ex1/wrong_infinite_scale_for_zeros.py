"""A group of zeros gets an infinite scale."""

import torch

FAILS = ["test_group_of_zeros", "test_grid_follows_the_range"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo, hi, bits, symmetric)
    return torch.where((lo == 0) & (hi == 0), torch.inf, scale), zero
