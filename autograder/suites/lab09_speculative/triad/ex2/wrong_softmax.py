"""What is missing goes through a softmax."""

FAILS = ["test_residual"]


def residual(p, q):
    return (p - q).clamp(min=0).softmax(-1) if (p > q).any() else p
