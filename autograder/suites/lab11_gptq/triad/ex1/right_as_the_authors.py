"""As the authors' program: the old mean shrinks, the new tokens are scaled before the product."""


def add_tokens(h, seen, x):
    x = x.reshape(-1, x.shape[-1]).T.double()
    count = x.shape[1]
    if count == 0:
        return h.clone(), seen
    h = h * (seen / (seen + count))
    x = x / math.sqrt(seen + count)
    return h.addmm(x, x.T), seen + count


def damped(h, damping):
    if h.ndim != 2 or len(set(h.shape)) != 1:
        raise ValueError("not square")
    if not (math.isfinite(damping) and damping >= 0):
        raise ValueError("damping")
    h = h.clone()
    dead = h.diag() == 0
    h[dead, dead] = 1
    places = torch.arange(h.shape[0])
    h[places, places] += damping * torch.mean(torch.diag(h))
    return h, dead


def output_error(w, v, h):
    e = w.double() - v.double()
    return torch.stack([row @ h @ row for row in e])
