"""The two times are added; a machine does both at once."""

FAILS = ["test_rates_by_hand", "test_rates_against_both_bounds"]


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    return batch / ((weights + batch * kv) / bandwidth + batch * flops / peak)
