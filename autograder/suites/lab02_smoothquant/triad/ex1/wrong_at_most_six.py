"""No more than six channels: a model is said to have six or seven."""

FAILS = ["test_rule_for_outliers"]


def outlier_channels(x_max, ratio):
    large = (x_max > 0) & (x_max >= ratio * x_max.median())
    return large.nonzero().flatten()[:6]
