"""Probabilities are compared: logits that differ by 1e-9 become equal."""

FAILS = ["test_sizes_and_magnitudes"]


def verify_greedy(proposed, logits):
    own = logits.softmax(-1).argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
