"""Solves H e = 0 at what follows, with e_j given: no inverse."""


def change_one(w, h, j, v, free):
    w, v = w.double(), v.double()
    others = [k for k in range(w.shape[1]) if bool(free[k]) and k != j]
    e = torch.zeros_like(w)
    e[:, j] = w[:, j] - v
    if others:
        pull = h[others, j]
        answer = torch.linalg.solve(h[others][:, others], pull)
        e[:, others] = -torch.outer(e[:, j], answer)
    new = torch.where(e == 0, w, w - e)
    new[:, j] = v
    return new, (e @ h * e).sum(1)


def prices(h):
    after = []
    for j in range(len(h)):
        rest = [k for k in range(len(h)) if k != j]
        cost = h[j, j]
        if rest:
            cost = cost - h[j, rest] @ torch.linalg.solve(h[rest][:, rest], h[rest, j])
        after.append(cost)
    return torch.diag(h).clone(), torch.stack(after)
