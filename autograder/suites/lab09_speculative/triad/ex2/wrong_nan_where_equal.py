"""0 / 0 where p = q."""

FAILS = ["test_residual"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum()
