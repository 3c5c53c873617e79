"""The scale is rounded to the dtype of w."""

FAILS = ["test_merged_weights"]


def merge(w, a, b, scale):
    scale = torch.tensor(scale, dtype=w.dtype).double()
    return (w.double() + scale * (b.double() @ a.double())).to(w.dtype)


def stack(updates):
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([s * b for _, b, s in updates], dim=1)
    return a, b


def factor(delta, r):
    if not 1 <= r <= min(delta.shape):
        raise ValueError("r")
    u, s, vt = torch.linalg.svd(delta, full_matrices=False)
    return vt[:r], u[:, :r] * s[:r]
