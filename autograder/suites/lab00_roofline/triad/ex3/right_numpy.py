"""Arrays; parts are added up at once."""

import numpy as np


def _checked(values, rates=()):
    if min([0, *values]) < 0 or min([1, *rates]) <= 0:
        raise ValueError("below what is possible")


def intensity(flops, moved):
    _checked([flops, moved])
    if not moved:
        return float("inf") if flops else 0.0
    return float(np.float64(flops) / np.float64(moved))


def ridge(peak, bandwidth):
    _checked([], [peak, bandwidth])
    return float(np.divide(peak, bandwidth))


def attainable(flops_per_byte, peak, bandwidth):
    _checked([flops_per_byte], [peak, bandwidth])
    return float(np.minimum(np.float64(flops_per_byte) * bandwidth, peak))


def seconds(flops, moved, peak, bandwidth):
    return in_turn([(flops, moved)], peak, bandwidth)


def limit(flops, moved, peak, bandwidth):
    _checked([flops, moved], [peak, bandwidth])
    taken = np.array([flops / peak, moved / bandwidth])
    return ("compute", "memory")[int(taken.argmax())]  # the first of equal ones


def in_turn(parts, peak, bandwidth):
    work = np.array(parts, dtype=np.float64).reshape(-1, 2)
    _checked(work.flatten().tolist(), [peak, bandwidth])
    return float((work / np.array([peak, bandwidth])).max(axis=1).sum())
