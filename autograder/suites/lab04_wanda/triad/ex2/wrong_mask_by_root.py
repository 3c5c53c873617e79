"""Roots of scores are compared, in which neighbours are equal."""

FAILS = ["test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    return keep_share(scores(w, norms).sqrt(), sparsity, "row")
