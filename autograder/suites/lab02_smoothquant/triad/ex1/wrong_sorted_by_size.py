"""The channels come in the order of their size."""

FAILS = ["test_rule_for_outliers"]

_right = outlier_channels  # noqa: F821 -- the solution of exercise 1


def outlier_channels(x_max, ratio):
    found = _right(x_max, ratio)
    return found[x_max[found].argsort(descending=True)]
