"""abs after the mean: activations of both signs cancel."""

FAILS = ["test_mean_of_magnitudes", "test_scores_against_float64"]


def mean_magnitude(x):
    return x.float().reshape(-1, x.shape[-1]).mean(0).abs()
