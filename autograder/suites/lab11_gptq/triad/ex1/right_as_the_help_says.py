"""The help and the last hint, line by line."""


def add_tokens(h, seen, x):
    rows = x.double().reshape(-1, x.shape[-1])
    new = len(rows)
    if new == 0:
        return h.clone(), seen
    return seen / (seen + new) * h + new / (seen + new) * (rows.T @ rows / new), seen + new


def damped(h, damping):
    if h.ndim != 2 or h.shape[0] != h.shape[1] or not (damping >= 0 and math.isfinite(damping)):
        raise ValueError("h must be square, damping finite and not negative")
    dead = h.diagonal() == 0
    h = h.clone()
    h.diagonal()[dead] = 1.0
    h.diagonal().add_(damping * h.diagonal().mean())
    return h, dead


def output_error(w, v, h):
    e = w.double() - v.double()
    return (e @ h * e).sum(1)
