"""topk of the groups."""


def nm_mask(scores, n, m):
    if m < 1 or n < 0 or n > m or scores.shape[1] % m != 0:
        raise ValueError((n, m))
    groups = scores.unflatten(1, (-1, m))
    mask = torch.zeros_like(groups, dtype=torch.bool)
    mask.scatter_(2, groups.topk(n, dim=2).indices, True)
    return mask.flatten(1)


def fits(w, n, m):
    if m < 1 or n < 0 or n > m or w.shape[1] % m != 0:
        raise ValueError((n, m))
    return (w != 0).unflatten(1, (-1, m)).sum(2).max().item() <= n
