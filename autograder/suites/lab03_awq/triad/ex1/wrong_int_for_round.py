"""int() cuts what round() rounds."""

FAILS = ["test_ranks"]


def top_channels(score, fraction):
    if not 0 < fraction <= 1:
        raise ValueError(fraction)
    return score.topk(max(1, int(fraction * len(score)))).indices
