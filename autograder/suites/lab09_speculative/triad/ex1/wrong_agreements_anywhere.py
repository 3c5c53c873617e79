"""Agreements behind a wrong guess count, too."""

FAILS = ["test_greedy_by_hand", "test_all_small_rounds", "test_long_and_strange_rounds"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    return own[: int((own[:-1] == proposed).sum()) + 1]
