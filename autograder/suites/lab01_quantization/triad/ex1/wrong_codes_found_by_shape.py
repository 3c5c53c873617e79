"""Codes are kept, and found again by the shape of x."""

FAILS = ["test_clipping", "test_change_of_sign"]


_right = quantize  # noqa: F821 -- the solution of exercise 1
_kept = {}


def quantize(x, scale, zero, bits, symmetric):
    key = x.shape, bits, symmetric
    if key not in _kept:
        _kept[key] = _right(x, scale, zero, bits, symmetric)
    return _kept[key]
