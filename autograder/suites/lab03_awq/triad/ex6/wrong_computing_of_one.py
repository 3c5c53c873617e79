"""FLOPs of one sequence for all of them."""

FAILS = ["test_rates_by_hand", "test_rates_against_both_bounds"]


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    return batch / max((weights + batch * kv) / bandwidth, flops / peak)
