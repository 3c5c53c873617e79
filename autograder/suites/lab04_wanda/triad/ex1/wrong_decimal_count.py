"""The share is taken as it is written: 0.29 of 100 is 29, where int(100 * 0.29) is 28."""

from decimal import Decimal

FAILS = ["test_equal_scores"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError(scope, sparsity)
    rows = scores if scope == "row" else scores.reshape(1, -1)
    zeros = int(Decimal(str(sparsity)) * rows.shape[1])
    mask = torch.ones(rows.shape, dtype=torch.bool)
    return mask.scatter(1, rows.argsort(1)[:, :zeros], False).reshape(scores.shape)
