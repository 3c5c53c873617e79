"""N * K // G groups: the shorter last group of a row is not paid for."""

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    return n * k * bits + n * k // size * (16 if symmetric else 16 + bits)
