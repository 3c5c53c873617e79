"""Rounded up to a whole number of sequences."""

import math

FAILS = ["test_ridge_from_both_sides"]


def ridge_batch(weights, kv, flops, bandwidth, peak):
    return (
        math.inf
        if flops / peak <= kv / bandwidth
        else math.ceil(weights / bandwidth / (flops / peak - kv / bandwidth))
    )
