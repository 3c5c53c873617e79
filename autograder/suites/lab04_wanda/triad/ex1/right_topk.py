"""topk of the negative scores, row by row."""


def keep_share(scores, sparsity, scope):
    if scope not in {"row", "layer"}:
        raise ValueError("scope")
    if not (sparsity >= 0 and sparsity <= 1):
        raise ValueError("sparsity")
    flat = scores.float().reshape(
        -1 if scope == "row" else 1, scores.shape[1] if scope == "row" else scores.numel()
    )
    mask = torch.ones_like(flat, dtype=torch.bool)
    n = int(flat.shape[1] * sparsity)
    if n:
        for row, kept in zip(flat, mask, strict=True):
            kept[row.topk(n, largest=False).indices] = False
    return mask.view(scores.shape)


def apply_mask(w, mask):
    return w.masked_fill(~mask, 0)
