"""The help and the last hint, line by line."""


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError
    compared = scores if scope == "row" else scores.reshape(1, -1)
    order = compared.argsort(1)[:, : int(compared.shape[1] * sparsity)]
    mask = torch.ones(compared.shape, dtype=torch.bool)
    return mask.scatter(1, order, False).reshape(scores.shape)


def apply_mask(w, mask):
    return torch.where(mask, w, torch.zeros_like(w))
