"""A table of values is kept by the identity of the codes, which may have changed since."""

FAILS = ["test_codes_of_each_call"]


_right = dequantize  # noqa: F821 -- the solution of exercise 1
_kept = {}


def dequantize(codes, scale, zero):
    if id(codes) not in _kept:
        _kept[id(codes)] = codes, _right(codes, scale, zero)
    return _kept[id(codes)][1]
