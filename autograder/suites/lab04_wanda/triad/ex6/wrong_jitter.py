"""Something tiny is subtracted to decide among equal scores: it decides among tiny ones."""

FAILS = ["test_units_in_order"]


def best_units(scores, n):
    return (scores - 1e-6 * torch.arange(len(scores))).topk(n).indices.sort().values
