"""What is missing goes through a softmax."""

FAILS = ["test_residual", "test_residuals"]


def residual(p, q):
    return (p - q).clamp(min=0).softmax(-1) if (p > q).any() else p
