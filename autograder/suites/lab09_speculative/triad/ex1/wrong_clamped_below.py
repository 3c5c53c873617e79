"""Logits below -10000, -inf too, are all made -10000."""

FAILS = ["test_sizes_and_magnitudes"]


def verify_greedy(proposed, logits):
    own = logits.clamp(min=-1e4).argmax(-1)
    n = int((own[:-1] == proposed).long().cumprod(0).sum())
    return own[: n + 1]
