"""0 / 0 where p = q."""

FAILS = ["test_residual", "test_residuals"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum()
