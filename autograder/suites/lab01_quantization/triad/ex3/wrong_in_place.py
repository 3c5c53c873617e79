"""Writes the result into the argument, as SmoothQuant's published fake quantizer does."""

FAILS = ["test_each_group_has_its_grid", "test_awkward_weights"]

_right = quantize_weight  # noqa: F821 -- the solution of exercise 3


def quantize_weight(w, bits, granularity, symmetric):
    w_hat = _right(w, bits, granularity, symmetric)
    if w.dtype == w_hat.dtype:
        return w.copy_(w_hat)
    return w_hat
