"""The mean has the dtype of the activations."""

FAILS = ["test_scores_against_float64"]


def mean_magnitude(x):
    return x.abs().reshape(-1, x.shape[-1]).mean(0).float()
