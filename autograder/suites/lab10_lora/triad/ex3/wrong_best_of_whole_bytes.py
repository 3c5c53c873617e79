"""The best distance is searched with bytes that are cut to whole numbers."""

FAILS = ["test_no_better_distance"]


def best_every(layers, boundary, block):
    def held(n):
        return math.ceil(layers / n) * int(boundary) + n * int(block)

    return min(range(1, layers + 1), key=held)
