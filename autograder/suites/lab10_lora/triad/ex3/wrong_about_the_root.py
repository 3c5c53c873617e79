"""Tries the distances about the root only."""

FAILS = ["test_no_better_distance"]


def trained_numbers(shapes, r):
    return sum(r * (n + k) for n, k in shapes)


def bytes_held(frozen, trained, bits=16, copy=False):
    weights = frozen * bits / 8 + 2 * trained
    gradients = 2 * trained
    optimizer = (12 if copy else 8) * trained
    return weights, gradients, optimizer


def checkpointed(layers, boundary, block, every):
    groups = -(-layers // every)
    return groups * boundary + min(every, layers) * block


def best_every(layers, boundary, block):
    q = round(math.sqrt(layers * boundary / block)) if block else layers
    return min(
        range(max(1, min(q, layers) - 3), min(layers, q + 3) + 1),
        key=lambda n: checkpointed(layers, boundary, block, n),
    )
