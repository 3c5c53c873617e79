"""Maxima up to 1e-5 are taken for 0."""

FAILS = ["test_rule_for_outliers", "test_outliers_by_hand"]


def outlier_channels(x_max, ratio):
    large = (x_max >= ratio * x_max.median()) & (x_max > 1e-5)
    return large.nonzero().flatten()
