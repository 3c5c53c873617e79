"""The lowest."""

FAILS = ["test_best_units", "test_units_in_order"]


def best_units(scores, n):
    return scores.topk(n, largest=False).indices.sort().values
