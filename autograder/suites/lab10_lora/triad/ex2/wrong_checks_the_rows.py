"""A rank larger than K is let through where N is larger."""

FAILS = ["test_what_is_no_rank"]


def merge(w, a, b, scale):
    return (w.double() + scale * (b.double() @ a.double())).to(w.dtype)


def stack(updates):
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([s * b for _, b, s in updates], dim=1)
    return a, b


def factor(delta, r):
    if not 1 <= r <= delta.shape[0]:
        raise ValueError("r")
    u, s, vt = torch.linalg.svd(delta, full_matrices=False)
    return vt[:r], u[:, :r] * s[:r]
