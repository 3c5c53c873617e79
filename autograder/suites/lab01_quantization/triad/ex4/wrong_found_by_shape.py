"""Codebooks are kept, and found again by the shape of the values."""

FAILS = ["test_codebook_of_each_call", "test_empty_clusters"]


_right = kmeans_codebook  # noqa: F821 -- the solution of exercise 4
_kept = {}


def kmeans_codebook(values, bits, iterations):
    key = values.shape, bits, iterations
    if key not in _kept:
        _kept[key] = _right(values, bits, iterations)
    return _kept[key]
