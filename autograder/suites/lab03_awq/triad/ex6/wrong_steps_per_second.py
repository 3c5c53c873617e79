"""Steps per second, although a step makes a token for every sequence."""

FAILS = ["test_rates_by_hand", "test_rates_against_both_bounds"]


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    return 1 / max((weights + batch * kv) / bandwidth, batch * flops / peak)
