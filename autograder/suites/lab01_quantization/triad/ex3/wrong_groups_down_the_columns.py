"""Groups along the outputs: dim 0 for dim 1."""

FAILS = ["test_each_group_has_its_grid", "test_rows_are_independent_per_channel"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    return _right(w.T, bits, granularity, symmetric).T.contiguous()
