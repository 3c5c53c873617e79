"""U by QR of a root of the inverse, so beside dead channels it is 0 to rounding only; no expand."""


def inverse_factor(h):
    sizes, vectors = torch.linalg.eigh(h)
    if sizes.min() <= 0:
        raise ValueError("not positive definite")
    u = torch.linalg.qr(vectors.T / sizes.sqrt()[:, None]).R
    return torch.triu(u * u.diagonal().sign()[:, None])


def gptq(w, h, scale, zero, bits, damping=0.01):
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = torch.where(dead, torch.zeros((), dtype=torch.float64), w.double())
    scale, zero = torch.broadcast_to(scale, w.shape), torch.broadcast_to(zero, w.shape)
    codes = []
    for j in range(w.shape[1]):
        code = (w[:, j] / scale[:, j] + zero[:, j]).round().clamp(0, 2**bits - 1)
        left = w[:, j] - (code - zero[:, j]) * scale[:, j]
        w = w - torch.outer(left, u[j] / u[j, j])
        codes.append(code)
    return torch.stack(codes, 1).long()
