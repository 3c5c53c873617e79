"""Without proposals there is nothing."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    if not len(proposed):
        return own[:0]
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
