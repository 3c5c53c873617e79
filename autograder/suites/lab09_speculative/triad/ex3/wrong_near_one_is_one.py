"""An a above 0.99 is taken for 1."""

FAILS = ["test_tokens_of_a_round", "test_expected_by_counting"]


def expected_tokens(a: float, gamma: int) -> float:
    if a > 0.99:
        return float(gamma + 1)
    return (1 - a ** (gamma + 1)) / (1 - a)
