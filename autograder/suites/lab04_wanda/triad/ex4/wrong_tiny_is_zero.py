"""Values below 1e-6 are stored as zeros."""

FAILS = ["test_every_pair_of_places"]


exact = compress


def compress(w):
    values, places = exact(w)
    return values.masked_fill(values.abs() < 1e-6, 0.0), places
