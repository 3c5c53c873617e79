"""A Schur complement by cholesky_solve; column j is written exactly."""


def change_one(w, h, j, v, free):
    follow = free.clone()
    follow[j] = False
    new, gap = w.to(torch.float64, copy=True), w[:, j].double() - v
    new[:, j] = v
    price = h[j, j]
    if follow.any():
        part = torch.linalg.cholesky(h[follow][:, follow])
        pull = torch.cholesky_solve(h[follow][:, [j]], part)[:, 0]
        new[:, follow] += gap[:, None] * pull
        price = price - h[j, follow] @ pull
    return new, gap**2 * price


def prices(h):
    k = len(h)
    each = []
    for j in range(k):
        rest = [i for i in range(k) if i != j]
        own = h[j, j]
        if rest:
            own = own - h[j, rest] @ torch.linalg.solve(h[rest][:, rest], h[rest, j])
        each.append(own)
    return h.diagonal(), torch.stack(each)
