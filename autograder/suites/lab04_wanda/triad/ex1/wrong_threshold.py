"""Everything above the int(n s)-th score stays: of equal scores all go."""

FAILS = ["test_as_many_as_asked", "test_equal_scores"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError
    compared = scores if scope == "row" else scores.reshape(1, -1)
    n = int(compared.shape[1] * sparsity)
    if n == 0:
        return torch.ones(scores.shape, dtype=torch.bool)
    limit = compared.sort(dim=1).values[:, n - 1 : n]
    return (compared > limit).reshape(scores.shape)
