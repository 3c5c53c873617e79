"""The result comes back as one long row."""

FAILS = ["test_symmetric_range", "test_parameters_of_every_width"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo.flatten(), hi.flatten(), bits, symmetric)
    return scale, zero
