"""Scores are rounded to the dtype of w before they are compared."""

FAILS = ["test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    return keep_share(scores(w, norms).to(w.dtype), sparsity, "row")
