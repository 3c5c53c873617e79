"""The chance that two draws are equal."""

FAILS = ["x"]


def acceptance_rate(p, q):
    return float((p * q).sum())
