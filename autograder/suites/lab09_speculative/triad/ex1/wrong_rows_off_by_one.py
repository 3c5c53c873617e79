"""Row i is taken to judge proposal i - 1."""

FAILS = [
    "test_greedy_by_hand",
    "test_greedy_ends",
    "test_all_small_rounds",
    "test_long_and_strange_rounds",
]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[1:] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]
