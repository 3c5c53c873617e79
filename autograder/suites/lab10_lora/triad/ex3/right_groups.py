"""Ceiling by negative division, and pairs that are compared."""


def trained_numbers(shapes, r):
    return r * sum(map(sum, shapes))


def bytes_held(frozen, trained, bits=16, copy=False):
    weights = (bits * frozen + 16 * trained) / 8
    return weights, trained * 16 / 8, 4 * trained * (2 + int(copy))


def checkpointed(layers, boundary, block, every):
    return -(-layers // every) * boundary + every * block


def best_every(layers, boundary, block):
    sums = [(-(-layers // n) * boundary + n * block, n) for n in range(1, layers + 1)]
    return min(sums)[1]
