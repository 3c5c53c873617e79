"""Scores are compared in bfloat16."""

FAILS = ["test_units_in_order"]


def best_units(scores, n):
    return scores.bfloat16().topk(n).indices.sort().values
