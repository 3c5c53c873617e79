"""Each column from the errors before it, by ratios of the factor; no update behind."""


def inverse_factor(h):
    lower, bad = torch.linalg.cholesky_ex(h.flip(0, 1))
    if bad.item() or not lower.isfinite().all():
        raise ValueError("not positive definite")
    eye = torch.eye(len(h), dtype=torch.float64)
    return torch.linalg.solve_triangular(lower, eye, upper=False).flip(0, 1)


def gptq(w, h, scale, zero, bits, damping=0.01):
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = w.double() * ~dead
    first = w.clone()
    ratio = u / u.diagonal()[:, None]
    left = torch.zeros_like(w)
    codes = []
    scale, zero = torch.broadcast_to(scale, w.shape), torch.broadcast_to(zero, w.shape)
    for j in range(w.shape[1]):
        now = first[:, j] - left[:, :j] @ ratio[:j, j]
        code = nearest(now[:, None], scale[:, j : j + 1], zero[:, j : j + 1], bits)
        left[:, j] = now - values(code, scale[:, j : j + 1], zero[:, j : j + 1])[:, 0]
        codes.append(code)
    return torch.cat(codes, dim=1)
