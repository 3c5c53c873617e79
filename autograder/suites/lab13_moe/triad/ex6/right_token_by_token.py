"""Each token for itself, with its own rows; the loss by softplus."""


def predictor_loss(scores, active):
    y = active.float()
    w = y.mean() + 0.005
    each = F.softplus(scores) - y * scores
    each = torch.where(active, F.softplus(-scores), F.softplus(scores)) + 0 * each.detach()
    return (each * (y * (1 - w) + w)).mean()


def recall(chosen, active):
    found = chosen[active]
    return found.float().mean().item() if found.numel() else 1.0


def skipping_mlp(x, gate, up, down, chosen):
    rows = []
    for t in range(len(x)):
        own = chosen[t].nonzero().flatten()
        inner = (gate[own] @ x[t]).clamp(min=0) * (up[own] @ x[t])
        rows.append(down[:, own] @ inner)
    return torch.stack(rows) if rows else torch.zeros_like(x)


def bytes_read(chosen, width, number, predictor):
    union = set()
    for row in chosen.tolist():
        union |= {n for n, c in enumerate(row) if c}
    return predictor * number + len(union) * width * 3 * number
