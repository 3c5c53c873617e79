"""Ties go away from 0, as on a pocket calculator."""

import torch

FAILS = ["test_ties_go_to_even", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    steps = x.float() / scale
    codes = (steps.sign() * (steps.abs() + 0.5).floor() + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
