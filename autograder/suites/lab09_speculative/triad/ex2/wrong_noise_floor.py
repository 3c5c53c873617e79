"""What is missing by less than 1e-6 counts as noise."""

FAILS = ["test_residuals"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    rest = rest * (rest > 1e-6)
    total = rest.sum()
    return rest / total if total > 0 else p.clone()
