"""w - e in every column: the changed one is v to rounding. Prices by eigenvalues."""


def change_one(w, h, j, v, free):
    w = w.double()
    move = free | (torch.arange(len(h)) == j)
    at = move.nonzero().flatten()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(h[at][:, at]))
    p = (at == j).nonzero().item()
    e = torch.zeros_like(w)
    e[:, at] = (w[:, j] - v)[:, None] * inverse[p] / inverse[p, p]
    return w - e, (e @ h * e).sum(1)


def prices(h):
    values, vectors = torch.linalg.eigh(h)
    return torch.diag(h), 1 / (vectors.square() / values).sum(1)
