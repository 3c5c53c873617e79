"""A constant against division by 0 spoils the sum."""

FAILS = ["x"]


def residual(p, q):
    rest = (p - q).clamp(min=0) + 1e-4
    return rest / rest.sum()
