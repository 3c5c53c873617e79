"""Of equal logits the last."""

FAILS = ["test_greedy_ends", "test_long_and_strange_rounds"]


def verify_greedy(proposed, logits):
    own = logits.shape[-1] - 1 - logits.flip(-1).argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
