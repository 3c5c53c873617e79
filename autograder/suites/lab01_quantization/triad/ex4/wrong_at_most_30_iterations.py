"""Never more than 30 iterations, however many were asked for."""

FAILS = ["test_runs_until_nothing_moves"]


_right = kmeans_codebook  # noqa: F821 -- the solution of exercise 4


def kmeans_codebook(values, bits, iterations):
    return _right(values, bits, min(iterations, 30))
