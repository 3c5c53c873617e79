"""The closed formula at a = 1, too."""

FAILS = ["x"]


def expected_tokens(a, gamma):
    return (1 - a ** (gamma + 1)) / (1 - a)
