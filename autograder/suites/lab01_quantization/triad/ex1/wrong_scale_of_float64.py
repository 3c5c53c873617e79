"""The scale comes back in float64."""

FAILS = ["test_symmetric_range", "test_range_on_one_side_of_zero"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo.double(), hi.double(), bits, symmetric)
    return scale.double(), zero
