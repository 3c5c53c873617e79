"""fits looks at the first row."""

FAILS = ["test_fits_just_or_not", "test_what_fits"]


def fits(w, n, m):
    return bool(((grouped(w, n, m)[:1] != 0).sum(-1) <= n).all())
