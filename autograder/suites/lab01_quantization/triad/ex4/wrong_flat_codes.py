"""Codes in one long row: the shape of the values is lost."""

FAILS = ["test_lecture_example", "test_codes_point_to_the_nearest"]

_right = kmeans_codebook  # noqa: F821 -- the solution of exercise 4


def kmeans_codebook(values, bits, iterations):
    codebook, codes = _right(values, bits, iterations)
    return codebook, codes.flatten()
