"""Keys and values are left out."""

FAILS = ["test_ridge_by_hand", "test_no_ridge"]


def ridge_batch(weights, kv, flops, bandwidth, peak):
    return (weights / bandwidth) / (flops / peak)
