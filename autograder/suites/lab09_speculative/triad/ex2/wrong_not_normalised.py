"""The residual is not divided by its sum."""

FAILS = ["test_residual", "test_residuals"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest if rest.sum() > 0 else p
