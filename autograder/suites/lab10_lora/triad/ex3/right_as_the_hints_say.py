"""What the hints say, word for word."""


def trained_numbers(shapes, r):
    return sum(r * (n + k) for n, k in shapes)


def bytes_held(frozen, trained, bits=16, copy=False):
    return frozen * bits / 8 + 2 * trained, 2 * trained, (12 if copy else 8) * trained


def checkpointed(layers, boundary, block, every):
    return math.ceil(layers / every) * boundary + min(every, layers) * block


def best_every(layers, boundary, block):
    return min(range(1, layers + 1), key=lambda n: checkpointed(layers, boundary, block, n))
