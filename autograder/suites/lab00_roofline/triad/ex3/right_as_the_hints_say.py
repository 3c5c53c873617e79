"""What help and hints say, word for word."""

import math


def _machine(peak, bandwidth):
    if peak <= 0 or bandwidth <= 0:
        raise ValueError("machine")


def intensity(flops, moved):
    if flops < 0 or moved < 0:
        raise ValueError("negative")
    if moved == 0:
        return math.inf if flops > 0 else 0.0
    return flops / moved


def ridge(peak, bandwidth):
    _machine(peak, bandwidth)
    return peak / bandwidth


def attainable(flops_per_byte, peak, bandwidth):
    _machine(peak, bandwidth)
    if flops_per_byte < 0:
        raise ValueError("negative")
    if flops_per_byte >= peak / bandwidth:
        return peak
    return flops_per_byte * bandwidth


def seconds(flops, moved, peak, bandwidth):
    _machine(peak, bandwidth)
    if flops < 0 or moved < 0:
        raise ValueError("negative")
    return max(flops / peak, moved / bandwidth)


def limit(flops, moved, peak, bandwidth):
    seconds(flops, moved, peak, bandwidth)
    return "memory" if moved / bandwidth > flops / peak else "compute"


def in_turn(parts, peak, bandwidth):
    _machine(peak, bandwidth)
    total = 0.0
    for flops, moved in parts:
        total += seconds(flops, moved, peak, bandwidth)
    return total
