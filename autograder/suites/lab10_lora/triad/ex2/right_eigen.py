"""float32, the factor on A, and eigenvectors of delta^T delta."""


def merge(w, a, b, scale):
    return torch.addmm(w.float(), b, a, alpha=scale).to(w.dtype)


def stack(updates):
    rows, columns = [], []
    for a, b, scale in updates:
        rows.append(scale * a)
        columns.append(b)
    return torch.vstack(rows), torch.hstack(columns)


def factor(delta, r):
    if not 1 <= r <= min(delta.shape):
        raise ValueError("rank")
    d = delta.double()
    _, vectors = torch.linalg.eigh(d.T @ d)  # ascending
    v = vectors.flip(1)[:, :r]  # [K, r]
    return v.T.float().contiguous(), (d @ v).float()
