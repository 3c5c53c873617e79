"""The accepted proposals alone."""

FAILS = ["x"]


def expected_tokens(a, gamma):
    return float(sum(a**i for i in range(1, gamma + 1)))
