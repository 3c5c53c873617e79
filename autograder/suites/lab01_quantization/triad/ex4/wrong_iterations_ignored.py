"""Always ten iterations, whatever was asked for."""

FAILS = ["test_lecture_example"]

_right = kmeans_codebook  # noqa: F821 -- the solution of exercise 4


def kmeans_codebook(values, bits, iterations):
    return _right(values, bits, 10)
