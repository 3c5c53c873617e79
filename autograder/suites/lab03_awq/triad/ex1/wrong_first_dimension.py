"""A mean over the first dimension only."""

FAILS = ["test_mean_of_magnitudes", "test_scores_against_float64"]


def mean_magnitude(x):
    return x.float().abs().mean(0)
