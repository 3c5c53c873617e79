"""view instead of reshape: fails on a transposed weight."""

FAILS = ["test_awkward_weights"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    return _right(w.view(-1).view(w.shape), bits, granularity, symmetric)
