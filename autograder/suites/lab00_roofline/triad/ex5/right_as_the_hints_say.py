"""What help and hints say, word for word."""

import math


def ridge_batch(config, context, peak, bandwidth, bits=16, kv_bits=16):
    f = step_flops(config, 1, context)
    k = step_bytes(config, 1, context, 2, bits, kv_bits)
    k -= step_bytes(config, 1, context, 1, bits, kv_bits)
    w = step_bytes(config, 1, context, 1, bits, kv_bits) - k
    ridge(peak, bandwidth)  # peak and bandwidth above 0
    if f / peak <= k / bandwidth:
        return math.inf
    return (w / bandwidth) / (f / peak - k / bandwidth)


def ridge_context(config, peak, bandwidth, kv_bits=16):
    f1 = step_flops(config, 1, 1) - step_flops(config, 1, 0)
    f0 = step_flops(config, 1, 0) - f1
    k1 = step_bytes(config, 1, 0, 2, 16, kv_bits) - step_bytes(config, 1, 0, 1, 16, kv_bits)
    ridge(peak, bandwidth)
    if f1 / peak >= k1 / bandwidth:
        return math.inf
    s = (f0 / peak) / (k1 / bandwidth - f1 / peak)
    return max(0.0, s - 1)
