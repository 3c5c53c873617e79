"""Results are kept, and found again by shape, bits and kind: other numbers of that shape get
them."""

FAILS = ["test_grid_of_each_call", "test_grid_follows_the_range"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1
_kept = {}


def affine_parameters(lo, hi, bits, symmetric):
    key = lo.shape, lo.dtype, bits, symmetric
    if key not in _kept:
        _kept[key] = _right(lo, hi, bits, symmetric)
    return _kept[key]
