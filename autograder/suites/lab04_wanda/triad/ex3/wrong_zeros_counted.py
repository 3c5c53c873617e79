"""fits wants n zeros."""

FAILS = ["test_fits_just_or_not", "test_patterns_that_cannot_be", "test_what_fits"]


def fits(w, n, m):
    return bool(((grouped(w, n, m) == 0).sum(-1) >= n).all())
