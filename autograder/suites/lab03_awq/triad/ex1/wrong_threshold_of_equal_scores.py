"""Takes all channels that reach the last chosen score: with equal scores too many."""

FAILS = ["test_top_of_ten", "test_ranks"]


def top_channels(score, fraction):
    if not 0 < fraction <= 1:
        raise ValueError("fraction")
    least = score.topk(max(1, round(fraction * score.numel()))).values.min()
    return (score >= least).nonzero().flatten()
