"""A scope is looked for in a string: "" and "ro" are parts of it."""

FAILS = ["test_masks_against_sorting"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row") and scope not in ("layer") or not 0 <= sparsity <= 1:
        raise ValueError(scope, sparsity)
    rows = scores if scope == "row" else scores.reshape(1, -1)
    zeros = int(sparsity * rows.shape[1])
    mask = torch.ones(rows.shape, dtype=torch.bool)
    return mask.scatter(1, rows.argsort(1)[:, :zeros], False).reshape(scores.shape)
