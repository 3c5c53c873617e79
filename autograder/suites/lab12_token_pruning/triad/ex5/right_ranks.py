"""Ranks by comparing all pairs."""


def before(score, alive):
    """How many of the alive stand before each one [..., N]."""
    i = torch.arange(score.shape[-1])
    a, b = score[..., :, None], score[..., None, :]
    better = (b > a) | ((b == a) & (i[None] > i[:, None]))
    return (better & alive[..., None, :]).sum(-1)


def cascade_tokens(p, score, alive, keep):
    new = score.clone()
    for b in range(len(p)):
        rows = p[b][:, alive[b]].double().sum((0, 1))
        new[b, alive[b]] += rows[alive[b]]
    return new, alive & (before(new, alive) < keep)


def cascade_heads(out, score, alive, keep):
    new = score + out.double().abs().sum(-1).sum(-1).masked_fill(~alive, 0.0)
    return new, alive & (before(new, alive) < keep)


def prune_values(p, v, keep):
    there = before(p, torch.ones_like(p) > 0) < keep
    kept, wide, group = p.double() * there, v.double(), p.shape[1] // v.shape[1]
    rows = [kept[:, h] @ wide[:, h // group] for h in range(p.shape[1])]
    return torch.stack(rows, 1).to(v.dtype)
