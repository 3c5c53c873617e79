"""The stationary point and its multiplier from one bordered system."""


def change_one(w, h, j, v, free):
    moving = free.clone()
    moving[j] = True
    at = moving.nonzero().flatten().tolist()
    n, size = len(w), len(at)
    bordered = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    bordered[:size, :size] = h[at][:, at]
    bordered[size, at.index(j)] = bordered[at.index(j), size] = 1.0
    right = torch.zeros(size + 1, n, dtype=torch.float64)
    right[size] = w[:, j].double() - v
    e = torch.linalg.solve(bordered, right)[:size].T
    new = w.double().clone()
    new[:, at] -= e
    new[:, j] = v
    return new, (e @ h[at][:, at] * e).sum(1)


def prices(h):
    one = torch.eye(len(h), dtype=h.dtype)
    inverse = torch.linalg.solve(h, one)
    return torch.einsum("ii->i", h).clone(), inverse.diagonal().reciprocal()
