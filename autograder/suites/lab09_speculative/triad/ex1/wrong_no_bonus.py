"""If all agree, nothing is added."""

FAILS = [
    "test_greedy_by_hand",
    "test_greedy_ends",
    "test_all_small_rounds",
    "test_long_and_strange_rounds",
]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: min(int(agree.sum()) + 1, max(1, len(proposed)))]
