"""The size is a float."""

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else n * (k + size - 1) // size * 1.0
    return n * k * bits + groups * (16 if symmetric else 16 + bits)
