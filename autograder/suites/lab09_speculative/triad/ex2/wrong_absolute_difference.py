"""The absolute difference in place of what is missing."""

FAILS = ["x"]


def residual(p, q):
    rest = (p - q).abs()
    return rest / rest.sum() if rest.sum() > 0 else p
