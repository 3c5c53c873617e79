"""Where the median is 0, every channel that is always 0 counts."""

FAILS = ["test_rule_for_outliers"]


def outlier_channels(x_max, ratio):
    return (x_max >= ratio * x_max.median()).nonzero().flatten()
