"""The shorter of the two times."""

FAILS = ["test_rates_by_hand", "test_rates_against_both_bounds"]


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    return batch / min((weights + batch * kv) / bandwidth, batch * flops / peak)
