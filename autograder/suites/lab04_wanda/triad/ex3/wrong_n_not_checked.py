"""n above m is taken."""

FAILS = ["test_patterns_that_cannot_be"]


def grouped(w, n, m):
    if m < 1 or n < 0 or w.shape[1] % m:
        raise ValueError
    return w.reshape(w.shape[0], -1, m)
