"""The last hint, line by line."""


def change_one(w, h, j, v, free):
    places = [k for k in range(len(h)) if free[k] or k == j]
    inverse = torch.linalg.inv(h[places][:, places])
    a = places.index(j)
    e_j = w[:, j].double() - v
    e = e_j[:, None] * inverse[a] / inverse[a, a]
    w_new = w.double().clone()
    w_new[:, places] = w_new[:, places] - e
    w_new[:, j] = v
    return w_new, e_j**2 / inverse[a, a]


def prices(h):
    nothing, alone, repaired = torch.zeros(1, len(h)), [], []
    one = torch.ones(1, dtype=torch.float64)
    for j in range(len(h)):
        alone.append(change_one(nothing, h, j, one, torch.zeros(len(h), dtype=torch.bool))[1])
        repaired.append(change_one(nothing, h, j, one, torch.ones(len(h), dtype=torch.bool))[1])
    return torch.cat(alone), torch.cat(repaired)
