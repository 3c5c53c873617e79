"""Something tiny is added so that no two scores are equal: it decides among tiny ones."""

FAILS = ["test_masks_against_sorting"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError(f"scope={scope!r} or sparsity={sparsity} is not known")
    compared = scores if scope == "row" else scores.reshape(1, -1)
    compared = compared - 1e-6 * torch.arange(compared.shape[1])
    order = compared.argsort(dim=1)
    mask = torch.ones(compared.shape, dtype=torch.bool)
    mask.scatter_(1, order[:, : int(compared.shape[1] * sparsity)], False)
    return mask.reshape(scores.shape)
