"""No answer where reading always takes longer: negative, or a division by 0."""

FAILS = ["test_ridge_by_hand", "test_no_ridge"]


def ridge_batch(weights, kv, flops, bandwidth, peak):
    return (weights / bandwidth) / (flops / peak - kv / bandwidth)
