"""Straight lines through two points, in exact fractions."""

import math
from fractions import Fraction as F


def _line(value, a, b):
    """(at 0, slope) of a straight line that is value(a) and value(b)."""
    slope = (F(value(b)) - F(value(a))) / (b - a)
    return F(value(a)) - slope * a, slope


def ridge_batch(config, context, peak, bandwidth, bits=16, kv_bits=16):
    ridge(peak, bandwidth)
    start, slope = _line(lambda b: step_bytes(config, 1, context, b, bits, kv_bits), 1, 3)
    _, work = _line(lambda b: step_flops(config, 1, context, b), 1, 2)
    steeper = work / F(peak) - slope / F(bandwidth)
    if steeper <= 0:
        return math.inf
    return float(start / F(bandwidth) / steeper)


def ridge_context(config, peak, bandwidth, kv_bits=16):
    ridge(peak, bandwidth)

    def of_one_more(context):
        pair = [step_bytes(config, 1, context, b, 8, kv_bits) for b in (1, 2)]
        return F(pair[1]) - F(pair[0])

    bytes_0, bytes_1 = _line(of_one_more, 0, 1)
    flops_0, flops_1 = _line(lambda c: step_flops(config, 1, c), 0, 1)
    ratio = F(peak) / F(bandwidth)
    if bytes_1 * ratio <= flops_1:
        return math.inf
    return max(0.0, float((flops_0 - ratio * bytes_0) / (ratio * bytes_1 - flops_1)))
