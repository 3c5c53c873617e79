"""Grids are kept from the first weight of a shape."""

FAILS = ["test_weight_of_each_call", "test_awkward_weights"]


_right = quantize_weight  # noqa: F821 -- the solution of exercise 3
_kept = {}


def quantize_weight(w, bits, granularity, symmetric):
    key = w.shape, w.dtype, bits, str(granularity), symmetric
    if key not in _kept:
        _kept[key] = _right(w, bits, granularity, symmetric)
    return _kept[key]
