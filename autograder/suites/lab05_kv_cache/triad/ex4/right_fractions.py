"""Exact fractions of bits, and a sort."""

from fractions import Fraction


def _bits(config, lengths, bits, group_size):
    exact = Fraction(cache_bytes(config, lengths, 1)) * 8  # values  # noqa: F821
    extra = Fraction(0) if group_size is None else Fraction(32, group_size)
    return exact * (bits + extra)


def max_batch(config, parameters, memory, context, weight_bits=16, bits=16, group_size=None):
    left = 8 * memory - parameters * Fraction(weight_bits)
    if left < 0:
        return 0
    return int(left / _bits(config, [context], bits, group_size))


def crossover(config, parameters, weight_bits=16, bits=16, group_size=None):
    weights, each = parameters * Fraction(weight_bits), _bits(config, [1], bits, group_size)
    n = int(weights / each)
    while n * each <= weights:
        n += 1
    return n


def best_lever(config, parameters, memory, context, levers):
    if not levers:
        raise ValueError("no levers")
    names = list(levers)

    def count(name):
        asked = dict(config=config, parameters=parameters, memory=memory, context=context)
        return max_batch(**{**asked, **levers[name]})

    return sorted(names, key=lambda name: (-count(name), names.index(name)))[0]
