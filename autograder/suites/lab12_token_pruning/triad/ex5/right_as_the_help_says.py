"""Infinity for the dead, a stable sort, and once more who is alive."""


def chosen(score, alive, keep):
    rated = score.double().clone()
    rated[~alive] = float("-inf")
    turned = torch.flip(rated, dims=[-1])
    order = torch.sort(turned, dim=-1, descending=True, stable=True).indices[..., :keep]
    mask = torch.zeros(score.shape, dtype=torch.bool)
    mask.scatter_(-1, score.shape[-1] - 1 - order, True)
    return mask & alive


def cascade_tokens(p, score, alive, keep):
    living = alive.double()
    got = torch.einsum("bhts,bt->bs", p.double(), living)
    score = score + got * living
    return score, chosen(score, alive, keep)


def cascade_heads(out, score, alive, keep):
    importance = out.double().abs().flatten(2).sum(-1)
    score = torch.where(alive, score + importance, score)
    return score, chosen(score, alive, keep)


def prune_values(p, v, keep):
    kept = torch.where(chosen(p, torch.ones_like(p, dtype=torch.bool), keep), p, 0.0)
    group = p.shape[1] // v.shape[1]
    return (kept.double() @ v.double().repeat_interleave(group, dim=1)).to(v.dtype)
