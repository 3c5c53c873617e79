"""The mean of min(1, p / q), not weighted by q."""

FAILS = ["test_rate", "test_rates"]


def acceptance_rate(p, q):
    ratios = (p / q).nan_to_num(1.0).clamp(max=1)
    return float(ratios.mean())
