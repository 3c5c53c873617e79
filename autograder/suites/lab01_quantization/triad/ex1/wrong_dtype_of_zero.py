"""The zero point is a whole number, but left in float32."""

FAILS = ["test_grid_by_hand"]

_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo, hi, bits, symmetric)
    return scale, zero.float()
