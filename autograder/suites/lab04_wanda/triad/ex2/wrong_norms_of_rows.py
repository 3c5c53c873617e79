"""The norms along the rows of a square weight."""

FAILS = ["test_masks_of_rows"]


def wanda_mask(w, norms, sparsity):
    if w.shape[0] == w.shape[1]:
        return keep_share(w.abs() * norms[:, None], sparsity, "row")
    return keep_share(scores(w, norms), sparsity, "row")
