"""Exercise 2 for every column, among the columns from it on; the factor by a QR and by flipping."""


def inverse_factor(h):
    if (torch.linalg.eigvalsh(h) <= 0).any():
        raise ValueError("h is not positive definite")
    lower = torch.linalg.cholesky(h.flip(0, 1))  # J H J = L L^T, so H^-1 = U^T U, U = J L^-1 J
    return torch.linalg.inv(lower).flip(0, 1).triu()


def gptq(w, h, scale, zero, bits, damping=0.01):
    h, dead = damped(h, damping)
    inverse_factor(h)
    w = torch.where(dead, 0.0, w.double())
    codes = []
    for j in range(w.shape[1]):
        s = scale[:, min(j, scale.shape[1] - 1)]
        z = zero[:, min(j, zero.shape[1] - 1)]
        code = torch.clamp(torch.round(w[:, j] / s + z), 0, 2**bits - 1)
        codes.append(code.long())
        w, _ = change_one(w, h, j, (code - z) * s, torch.arange(w.shape[1]) > j)
    return torch.stack(codes, 1)
