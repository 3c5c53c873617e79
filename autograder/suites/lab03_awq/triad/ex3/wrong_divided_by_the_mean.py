"""Normalized by the mean of s."""

FAILS = ["test_candidate_by_hand", "test_candidates_against_float64"]


def candidate_scales(x_mean, ratio):
    s = (x_mean.float() ** ratio).clamp(min=FLOOR)  # noqa: F821
    return s / s.mean()
