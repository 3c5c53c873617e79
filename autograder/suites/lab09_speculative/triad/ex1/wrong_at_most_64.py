"""At most 64 proposals are looked at."""

FAILS = ["test_sizes_and_magnitudes"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[:-1] == proposed)[:64].long().cumprod(0)
    return own[: int(agree.sum()) + 1]
