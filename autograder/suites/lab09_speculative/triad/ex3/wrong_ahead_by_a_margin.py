"""A longer draft has to be ahead by 1e-12."""

FAILS = ["test_best_lengths"]


def best_gamma(a, c, w, most):
    best = 0
    for g in range(most + 1):
        if speedup(a, g, c, w) > speedup(a, best, c, w) + 1e-12:
            best = g
    return best
