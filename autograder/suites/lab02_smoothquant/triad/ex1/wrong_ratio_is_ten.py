"""The ratio that was asked for is ignored."""

FAILS = ["test_outliers_by_hand", "test_rule_for_outliers"]


def outlier_channels(x_max, ratio):
    return ((x_max >= 10 * x_max.median()) & (x_max > 0)).nonzero().flatten()
