"""A mask in place of numbers."""

FAILS = ["test_best_units", "test_units_in_order"]


def best_units(scores, n):
    return torch.zeros(scores.shape, dtype=torch.bool).index_fill(0, scores.topk(n).indices, True)
