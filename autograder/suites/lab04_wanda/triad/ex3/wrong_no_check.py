"""Nothing is checked; torch raises RuntimeError where it must."""

FAILS = ["test_patterns_that_cannot_be"]


def grouped(w, n, m):
    return w.reshape(w.shape[0], -1, m)
