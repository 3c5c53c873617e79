"""range(most)."""

FAILS = ["x"]


def best_gamma(a, c, w, most):
    return max(range(most), key=lambda g: speedup(a, g, c, w)) if most else 0
