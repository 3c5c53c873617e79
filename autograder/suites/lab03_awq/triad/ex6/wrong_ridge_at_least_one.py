"""A batch is at least 1, thinks this one, and the ridge too."""

import math

FAILS = ["test_no_ridge"]


def ridge_batch(weights, kv, flops, bandwidth, peak):
    gap = flops / peak - kv / bandwidth
    return max(1.0, weights / bandwidth / gap) if gap > 0 else math.inf
