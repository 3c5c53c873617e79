"""Only what was accepted."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum())]
