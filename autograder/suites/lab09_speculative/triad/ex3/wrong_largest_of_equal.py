"""Of equal ones the largest."""

FAILS = ["x"]


def best_gamma(a, c, w, most):
    return max(range(most, -1, -1), key=lambda g: speedup(a, g, c, w))
