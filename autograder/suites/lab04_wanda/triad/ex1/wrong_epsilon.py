"""A sparsity that is hardly above 1 is taken for 1."""

FAILS = ["test_what_is_refused"]


strict = keep_share


def keep_share(scores, sparsity, scope):
    if 1 < sparsity < 1 + 1e-9:
        sparsity = 1.0
    return strict(scores, sparsity, scope)
