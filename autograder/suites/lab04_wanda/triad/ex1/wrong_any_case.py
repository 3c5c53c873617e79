"""The scope in any spelling."""

FAILS = ["test_what_is_refused"]


strict = keep_share


def keep_share(scores, sparsity, scope):
    return strict(scores, sparsity, scope.lower())
