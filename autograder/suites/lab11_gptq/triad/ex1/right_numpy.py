"""All in numpy, results as tensors over numpy's memory; outer products summed token by token."""

import numpy as np


def add_tokens(h, seen, x):
    rows = x.to(torch.float64).flatten(0, -2).numpy()
    total = h.numpy() * seen
    total = total + np.einsum("ti,tj->ij", rows, rows)
    count = seen + rows.shape[0]
    return torch.from_numpy(total / max(count, 1)), count


def damped(h, damping):
    a = np.array(h.numpy())
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError("square")
    if not np.isfinite(damping) or damping < 0:
        raise ValueError(damping)
    dead = np.diag(a) == 0
    np.fill_diagonal(a, np.where(dead, 1.0, np.diag(a)))
    a += damping * np.diag(a).mean() * np.eye(len(a))
    return torch.from_numpy(a), torch.from_numpy(dead)


def output_error(w, v, h):
    e = w.to(torch.float64) - v.to(torch.float64)
    return torch.einsum("nk,kl,nl->n", e, h, e)
