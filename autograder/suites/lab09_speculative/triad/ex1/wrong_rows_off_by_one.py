"""Row i is taken to judge proposal i - 1."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[1:] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
