"""The range of the whole weight, whatever the granularity."""

FAILS = ["test_each_group_has_its_grid", "test_rows_are_independent_per_channel"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    if granularity not in ("tensor", "channel") and not isinstance(granularity, int):
        raise ValueError(granularity)
    return _right(w, bits, "tensor", symmetric)
