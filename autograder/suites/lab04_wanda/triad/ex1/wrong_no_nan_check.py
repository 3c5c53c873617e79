"""A sparsity of NaN is not refused by a check of both sides."""

FAILS = ["test_what_is_refused"]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or sparsity < 0 or sparsity > 1:
        raise ValueError(f"scope={scope!r} or sparsity={sparsity} is not known")
    compared = scores if scope == "row" else scores.reshape(1, -1)
    order = compared.argsort(dim=1)
    mask = torch.ones(compared.shape, dtype=torch.bool)
    mask.scatter_(
        1, order[:, : 0 if sparsity != sparsity else int(compared.shape[1] * sparsity)], False
    )
    return mask.reshape(scores.shape)
