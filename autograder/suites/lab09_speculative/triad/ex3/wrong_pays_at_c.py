"""One proposal where a is no less than c: at a = c plain decoding is as fast."""

FAILS = ["test_best_lengths"]


def best_gamma(a, c, w, most):
    best = max(range(most + 1), key=lambda gamma: speedup(a, gamma, c, w))
    return 1 if best == 0 and most > 0 and a > 0 and a >= c + w else best
