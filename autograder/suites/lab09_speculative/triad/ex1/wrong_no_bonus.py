"""If all agree, nothing is added."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: min(int(agree.sum()) + 1, max(1, len(proposed)))]
