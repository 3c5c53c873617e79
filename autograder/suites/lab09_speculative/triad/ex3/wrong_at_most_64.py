"""No more than 64 are tried."""

FAILS = ["test_best_lengths"]


def best_gamma(a, c, w, most):
    return max(range(min(most, 64) + 1), key=lambda gamma: speedup(a, gamma, c, w))
