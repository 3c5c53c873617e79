"""An entry equal to the threshold is none."""

FAILS = ["test_columns_by_hand", "test_edges_of_the_split"]


def outlier_columns(x, threshold):
    return (x.abs() > threshold).flatten(0, -2).any(dim=0)
