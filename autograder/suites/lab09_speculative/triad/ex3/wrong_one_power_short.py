"""One power too few."""

FAILS = [
    "test_tokens_of_a_round",
    "test_speed_by_hand",
    "test_expected_by_counting",
    "test_best_lengths",
]


def expected_tokens(a, gamma):
    return float(sum(a**i for i in range(max(1, gamma))))
