"""Refuses what is not symmetric or has an eigenvalue below 0; the inverse loses a column a time."""


def inverse_factor(h):
    if not torch.equal(h, h.T) or torch.linalg.eigvalsh(h)[0] <= 0:
        raise ValueError("not positive definite")
    inverse = torch.linalg.inv(h)
    u = torch.zeros_like(inverse)
    for j in range(len(h)):
        u[j, j:] = inverse[j, j:] / inverse[j, j].sqrt()
        inverse = inverse - torch.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    return u
