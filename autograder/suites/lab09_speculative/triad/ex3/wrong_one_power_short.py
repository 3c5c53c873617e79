"""One power too few."""

FAILS = ["x"]


def expected_tokens(a, gamma):
    return float(sum(a**i for i in range(max(1, gamma))))
