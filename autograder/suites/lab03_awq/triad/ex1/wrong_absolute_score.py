"""Ranks |score|: a score need not be a magnitude."""

FAILS = ["test_ranks"]


def top_channels(score, fraction):
    if not 0 < fraction <= 1:
        raise ValueError(fraction)
    return score.abs().topk(max(1, round(fraction * len(score)))).indices
