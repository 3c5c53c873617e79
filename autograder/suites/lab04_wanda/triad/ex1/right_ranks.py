"""The rank of every score, from sorting twice."""


def keep_share(scores, sparsity, scope):
    if not 0 <= sparsity <= 1:
        raise ValueError(sparsity)
    if scope == "layer":
        return keep_share(scores.reshape(1, -1), sparsity, "row").reshape(scores.shape)
    if scope != "row":
        raise ValueError(scope)
    ranks = scores.argsort(dim=1).argsort(dim=1)
    return ranks >= int(sparsity * scores.shape[1])


def apply_mask(w, mask):
    new = w.clone()
    new[~mask] = 0
    return new


def magnitude_mask(w, sparsity, scope):
    return keep_share(w.float().square(), sparsity, scope)
