"""Counts up until nothing fits any more; the first lever that beats all before it."""

import math


def max_batch(config, parameters, memory, context, weight_bits=16, bits=16, group_size=None):
    used, each = parameters * weight_bits / 8, cache_bytes(config, [context], bits, group_size)  # noqa: F821
    n = 0
    while used + (n + 1) * each <= memory:
        n += 1
    return n


def crossover(config, parameters, weight_bits=16, bits=16, group_size=None):
    each = bytes_per_token(config, bits=bits, group_size=group_size)  # noqa: F821
    return math.floor(parameters * weight_bits / 8 / each) + 1


def best_lever(config, parameters, memory, context, levers):
    best, most = None, -1
    for name in levers:
        new = dict(levers[name])
        found = max_batch(
            new.pop("config", config),
            new.pop("parameters", parameters),
            new.pop("memory", memory),
            new.pop("context", context),
            **new,
        )
        if found > most:
            best, most = name, found
    if best is None:
        raise ValueError("no levers")
    return best
