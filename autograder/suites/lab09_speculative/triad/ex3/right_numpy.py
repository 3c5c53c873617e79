"""NumPy's polynomial and argmax."""

import numpy


def acceptance_rate(p, q):
    return float(numpy.minimum(p.numpy(), q.numpy()).sum())


def expected_tokens(a, gamma):
    return float(numpy.polyval(numpy.ones(gamma + 1), a))


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1.0 + gamma * c + gamma * w)


def best_gamma(a, c, w, most):
    return int(numpy.argmax([speedup(a, gamma, c, w) for gamma in range(most + 1)]))
