"""No check of the fraction."""

FAILS = ["test_top_of_ten", "test_ranks"]


def top_channels(score, fraction):
    return score.topk(min(len(score), max(1, round(fraction * len(score))))).indices
