"""Results are kept by the identity of lo, whose numbers may have changed since."""

FAILS = ["test_grid_of_each_call"]


_right = affine_parameters  # noqa: F821 -- the solution of exercise 1
_kept = {}


def affine_parameters(lo, hi, bits, symmetric):
    key = id(lo), bits, symmetric
    if key not in _kept:
        _kept[key] = lo, _right(lo, hi, bits, symmetric)  # lo is kept, so its id stays taken
    return _kept[key][1]
