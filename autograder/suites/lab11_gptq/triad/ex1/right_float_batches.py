"""Sums token by token in a loop over rows, the mean at the end; damping by an eye."""


def add_tokens(h, seen, x):
    total = h * seen
    rows = x.flatten(0, -2).to(torch.float64)
    for row in rows:
        total = total + torch.outer(row, row)
    seen = seen + rows.shape[0]
    return (total / seen if seen else total), seen


def damped(h, damping):
    if h.dim() != 2 or h.size(0) != h.size(1):
        raise ValueError("h is not square")
    if math.isnan(damping) or math.isinf(damping) or damping < 0:
        raise ValueError(f"damping {damping}")
    new = h.clone()
    dead = torch.diagonal(h) == 0
    for j in range(len(h)):
        if dead[j]:
            new[j, j] = 1.0
    return new + damping * new.diagonal().mean() * torch.eye(len(h), dtype=h.dtype), dead


def output_error(w, v, h):
    return torch.einsum("nk,kl,nl->n", w.double() - v.double(), h, w.double() - v.double())
