"""gamma a + 1: as if a wrong guess did not end the round."""

FAILS = [
    "test_tokens_of_a_round",
    "test_speed_by_hand",
    "test_expected_by_counting",
    "test_best_lengths",
]


def expected_tokens(a, gamma):
    return 1.0 + gamma * a
