"""What the hints say, word for word."""


def merge(w, a, b, scale):
    return (w.double() + scale * (b.double() @ a.double())).to(w.dtype)


def stack(updates):
    a = torch.cat([u[0] for u in updates])
    b = torch.cat([u[2] * u[1] for u in updates], dim=1)
    return a, b


def factor(delta, r):
    if r < 1 or r > min(delta.shape):
        raise ValueError(r)
    u, s, vh = torch.linalg.svd(delta, full_matrices=False)
    return vh[:r], u[:, :r] * s[:r]
