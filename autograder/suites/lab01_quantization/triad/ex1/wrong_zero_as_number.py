"""On a symmetric grid z is the Python number 0 and not a tensor."""

FAILS = ["test_grid_by_hand", "test_symmetric_range"]

_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo, hi, bits, symmetric)
    return scale, 0 if symmetric else zero
