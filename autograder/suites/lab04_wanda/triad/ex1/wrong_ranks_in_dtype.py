"""Ranks are held in the dtype of the scores: in bfloat16 those above 256 are rounded."""

FAILS = ["test_equal_scores"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError(scope, sparsity)
    rows = scores if scope == "row" else scores.reshape(1, -1)
    ranks = rows.argsort(1).argsort(1).to(scores.dtype)
    return (ranks >= int(sparsity * rows.shape[1])).reshape(scores.shape)
