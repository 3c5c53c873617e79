"""The last hint, line by line."""


def inverse_factor(h):
    lower, failed = torch.linalg.cholesky_ex(h)
    if failed:
        raise ValueError("h is not positive definite")
    return torch.linalg.cholesky(torch.linalg.inv(h), upper=True)


def gptq(w, h, scale, zero, bits, damping=0.01):
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = w.double().clone()
    w[:, dead] = 0
    scale, zero = scale.expand_as(w), zero.expand_as(w)
    codes = torch.zeros(w.shape, dtype=torch.int64)
    for j in range(w.shape[1]):
        codes[:, j] = nearest(w[:, j], scale[:, j], zero[:, j], bits)
        e = (w[:, j] - values(codes[:, j], scale[:, j], zero[:, j])) / u[j, j]
        w[:, j:] -= e[:, None] * u[j, j:]
    return codes
