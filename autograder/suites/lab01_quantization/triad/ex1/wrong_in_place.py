"""The stretch is written into the bounds that came in."""

FAILS = ["test_asymmetric_range", "test_range_on_one_side_of_zero"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1


def affine_parameters(lo, hi, bits, symmetric):
    scale, zero = _right(lo, hi, bits, symmetric)
    if not symmetric:
        lo.clamp_(max=0)
        hi.clamp_(min=0)
    return scale, zero
