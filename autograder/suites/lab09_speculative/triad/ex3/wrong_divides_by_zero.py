"""The closed formula at a = 1, too."""

FAILS = ["test_tokens_of_a_round", "test_expected_by_counting", "test_best_lengths"]


def expected_tokens(a, gamma):
    return (1 - a ** (gamma + 1)) / (1 - a)
