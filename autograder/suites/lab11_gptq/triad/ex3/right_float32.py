"""The loop in float32 (codes are far from ties), the inverse shrinks by one column at a time."""


def inverse_factor(h):
    try:
        return torch.linalg.cholesky(torch.linalg.inv(h), upper=True)
    except RuntimeError as fault:
        raise ValueError("no factor") from fault


def gptq(w, h, scale, zero, bits, damping=0.01):
    h, dead = damped(h, damping)
    inverse_factor(h)
    inverse = torch.linalg.inv(h / h.diagonal().mean()).float()
    size = scale.amax()
    w = (w.double() / size).float()
    w[:, dead] = 0.0
    n, k = w.shape
    s, zero = (scale / size).float().expand(n, k), zero.float().expand(n, k)
    codes = torch.zeros(n, k, dtype=torch.int64)
    for j in range(k):
        code = torch.round(w[:, j] / s[:, j] + zero[:, j]).clamp(0, 2**bits - 1)
        codes[:, j] = code.long()
        e = w[:, j] - (code - zero[:, j]) * s[:, j]
        w = w - torch.outer(e, inverse[j] / inverse[j, j])
        inverse = inverse - torch.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    return codes
