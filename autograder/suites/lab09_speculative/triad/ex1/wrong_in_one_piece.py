"""Takes for granted that the logits lie in one piece."""

FAILS = ["test_sizes_and_magnitudes"]


def verify_greedy(proposed, logits):
    own = logits.view(-1).view(len(proposed) + 1, -1).argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
