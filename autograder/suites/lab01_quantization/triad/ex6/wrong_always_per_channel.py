"""The granularity is not passed on."""

FAILS = ["test_new_weights", "test_total_of_a_small_model"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    return _right(model, bits, "channel")
