"""The ridge of the machine, FLOPs per byte, which is not a batch."""

FAILS = ["test_ridge_by_hand", "test_ridge_from_both_sides"]


def ridge_batch(weights, kv, flops, bandwidth, peak):
    return peak / bandwidth
