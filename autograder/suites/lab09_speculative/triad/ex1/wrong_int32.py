"""int32 in place of int64."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1).int()
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
