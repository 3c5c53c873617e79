"""A rate below 1e-9 is taken for 0."""

FAILS = ["test_expected_by_counting"]


def expected_tokens(a, gamma):
    return float(sum(a**i for i in range(gamma + 1))) if a > 1e-9 else 1.0
