"""A longer draft has to be ahead by 1e-4."""

FAILS = ["test_best_lengths"]


def best_gamma(a, c, w, most):
    best = 0
    for gamma in range(1, most + 1):
        if speedup(a, gamma, c, w) > speedup(a, best, c, w) + 1e-4:
            best = gamma
    return best
