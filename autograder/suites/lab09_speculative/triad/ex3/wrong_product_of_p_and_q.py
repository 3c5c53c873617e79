"""The chance that two draws are equal."""

FAILS = ["test_rate", "test_rates"]


def acceptance_rate(p, q):
    return float((p * q).sum())
