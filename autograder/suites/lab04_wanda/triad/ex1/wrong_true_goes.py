"""True where a weight goes."""

FAILS = [
    "test_as_many_as_asked",
    "test_bfloat16_and_views",
    "test_equal_scores",
    "test_masks_against_sorting",
    "test_masks_by_hand",
    "test_zeros_under_the_mask",
]


def keep_share(scores, sparsity, scope):
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError(f"scope={scope!r} or sparsity={sparsity} is not known")
    compared = scores if scope == "row" else scores.reshape(1, -1)
    order = compared.argsort(dim=1)
    mask = torch.zeros(compared.shape, dtype=torch.bool)
    mask.scatter_(1, order[:, : int(compared.shape[1] * sparsity)], True)
    return mask.reshape(scores.shape)
