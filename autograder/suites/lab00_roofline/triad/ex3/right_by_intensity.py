"""Everything from the intensity and the ridge; time is work over speed."""

import math


def intensity(flops, moved):
    if not (flops >= 0 and moved >= 0):
        raise ValueError((flops, moved))
    try:
        return flops / moved
    except ZeroDivisionError:
        return 0.0 if flops == 0 else math.inf


def ridge(peak, bandwidth):
    if not (peak > 0 and bandwidth > 0):
        raise ValueError((peak, bandwidth))
    return peak / bandwidth


def attainable(flops_per_byte, peak, bandwidth):
    share = flops_per_byte / ridge(peak, bandwidth)
    if not share >= 0:
        raise ValueError(flops_per_byte)
    return float(min(1, share) * peak)


def seconds(flops, moved, peak, bandwidth):
    at = intensity(flops, moved)
    if limit(flops, moved, peak, bandwidth) == "memory":
        return moved / bandwidth
    return flops / attainable(at, peak, bandwidth) if flops else 0.0


def limit(flops, moved, peak, bandwidth):
    at, edge = intensity(flops, moved), ridge(peak, bandwidth)
    return "memory" if moved and at < edge else "compute"


def in_turn(parts, peak, bandwidth):
    edge = ridge(peak, bandwidth)
    return math.fsum(seconds(f, m, edge * bandwidth, bandwidth) for f, m in parts)
