"""A constant against division by 0 spoils the sum."""

FAILS = ["test_residual"]


def residual(p, q):
    rest = (p - q).clamp(min=0) + 1e-4
    return rest / rest.sum()
