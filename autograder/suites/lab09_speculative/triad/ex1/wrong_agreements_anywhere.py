"""Agreements behind a wrong guess count, too."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    return own[: int((own[:-1] == proposed).sum()) + 1]
