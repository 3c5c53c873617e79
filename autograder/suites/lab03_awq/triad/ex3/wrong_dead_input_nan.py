"""Divides by the largest mean: an input that is dead altogether gives 0 / 0."""

FAILS = ["test_candidates_against_float64"]


def candidate_scales(x_mean, ratio):
    top = x_mean.max()
    s = ((x_mean / top) ** ratio * top**ratio).clamp(min=FLOOR)  # noqa: F821 -- given in the lab
    return s / (s.max() * s.min()).sqrt()
