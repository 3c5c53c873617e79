"""A ratio below 1 counts as 1."""

FAILS = ["test_rule_for_outliers", "test_outliers_by_hand"]


def outlier_channels(x_max, ratio):
    large = (x_max >= max(ratio, 1.0) * x_max.median()) & (x_max > 0)
    return large.nonzero().flatten()
