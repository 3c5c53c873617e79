"""Keys and values are read once for all sequences."""

FAILS = ["test_rates_by_hand", "test_rates_against_both_bounds"]


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    return batch / max((weights + kv) / bandwidth, batch * flops / peak)
