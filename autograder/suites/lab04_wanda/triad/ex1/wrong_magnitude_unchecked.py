"""magnitude_mask sorts by itself, without a check."""

FAILS = ["test_what_is_refused"]


def magnitude_mask(w, sparsity, scope):
    compared = w.abs() if scope == "row" else w.abs().reshape(1, -1)
    n = compared.shape[1]
    gone = min(n, max(0, int(n * sparsity))) if 0 <= sparsity < 1e9 else 0
    mask = torch.ones(compared.shape, dtype=torch.bool)
    mask.scatter_(1, compared.argsort(dim=1)[:, :gone], False)
    return mask.reshape(w.shape)
