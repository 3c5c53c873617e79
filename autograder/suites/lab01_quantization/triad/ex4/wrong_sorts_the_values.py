"""Sorts the argument itself."""

FAILS = ["test_codes_point_to_the_nearest", "test_runs_until_nothing_moves"]


_right = kmeans_codebook  # noqa: F821 -- the solution of exercise 4


def kmeans_codebook(values, bits, iterations):
    result = _right(values, bits, iterations)
    values.copy_(values.flatten().sort().values.reshape(values.shape))
    return result
