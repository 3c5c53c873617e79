"""A sparsity that cannot be is cut to what can."""

FAILS = ["test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    sparsity = min(1.0, max(0.0, 0.0 if sparsity != sparsity else sparsity))
    return keep_share(scores(w, norms), sparsity, "row")
