"""A column counts only if every token is large in it."""

FAILS = ["test_columns_by_hand"]


def outlier_columns(x, threshold):
    return (x.abs() >= threshold).flatten(0, -2).all(dim=0)
