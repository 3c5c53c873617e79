"""Returns the scores and not their places."""

FAILS = ["test_top_of_ten", "test_ranks"]


def top_channels(score, fraction):
    if not 0 < fraction <= 1:
        raise ValueError(fraction)
    return score.topk(max(1, round(fraction * len(score)))).values
