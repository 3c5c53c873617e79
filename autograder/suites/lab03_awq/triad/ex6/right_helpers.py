"""Seconds first, then everything else."""


def weight_bytes(shapes, bits, group_size):
    if bits >= 16:
        return 2.0 * sum(rows * columns for rows, columns in shapes)
    codes = sum(rows * columns for rows, columns in shapes) * bits
    groups = sum(rows * ((columns + group_size - 1) // group_size) for rows, columns in shapes)
    return (codes + groups * 16 + groups * bits) / 8


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    reading = weights / bandwidth + batch * (kv / bandwidth)
    computing = flops / peak * batch
    seconds = reading if reading > computing else computing
    return batch / seconds


def ridge_batch(weights, kv, flops, bandwidth, peak):
    reading, computing = kv / bandwidth, flops / peak
    if reading >= computing:
        return float("inf")
    return (weights / bandwidth) / (computing - reading)
