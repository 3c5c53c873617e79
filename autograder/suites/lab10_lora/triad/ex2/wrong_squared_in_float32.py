"""Eigenvectors of delta^T delta, which has the squares of the sizes, in float32."""

FAILS = ["test_the_nearest_matrix"]


def merge(w, a, b, scale):
    return (w.double() + scale * (b.double() @ a.double())).to(w.dtype)


def stack(updates):
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([s * b for _, b, s in updates], dim=1)
    return a, b


def factor(delta, r):
    if not 1 <= r <= min(delta.shape):
        raise ValueError("r")
    lam, v = torch.linalg.eigh(delta.T @ delta)
    v = v.flip(1)
    return v[:, :r].T, delta @ v[:, :r]
    return vt[:r], u[:, :r] * s[:r]
