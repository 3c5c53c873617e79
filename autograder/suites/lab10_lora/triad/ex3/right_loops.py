"""Everything added up one by one."""


def trained_numbers(shapes, r):
    total = 0
    for n, k in shapes:
        total += r * k  # A
        total += n * r  # B
    return total


def bytes_held(frozen, trained, bits=16, copy=False):
    states = [4, 4] + ([4] if copy else [])
    return float(frozen * bits / 8) + 2.0 * trained, 2.0 * trained, float(sum(states) * trained)


def checkpointed(layers, boundary, block, every):
    inputs, largest = 0, 0
    for start in range(0, layers, every):
        inputs += boundary
        largest = max(largest, min(start + every, layers) - start)
    return inputs + largest * block


def best_every(layers, boundary, block):
    best, least = None, math.inf
    for every in range(1, layers + 1):
        held = checkpointed(layers, boundary, block, every)
        if held < least:
            best, least = every, held
    return best
