"""One wrong guess loses the whole round."""

FAILS = ["test_greedy_by_hand", "test_all_small_rounds", "test_long_and_strange_rounds"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    return own if bool((own[:-1] == proposed).all()) else own[:1]
