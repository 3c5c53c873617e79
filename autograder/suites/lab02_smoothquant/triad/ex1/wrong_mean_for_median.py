"""Compares with the mean, which the outliers raise themselves."""

FAILS = ["test_outliers_by_hand"]


def outlier_channels(x_max, ratio):
    return ((x_max >= ratio * x_max.mean()) & (x_max > 0)).nonzero().flatten()
