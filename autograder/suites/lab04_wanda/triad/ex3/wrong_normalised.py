"""Scores in parts of the largest, and a floor under it: tiny ones become equal."""

FAILS = ["test_groups_against_sorting"]


def nm_mask(scores, n, m):
    groups = grouped(scores, n, m)
    groups = (groups / groups.abs().amax().clamp(min=1e-6) * 1e4).round()
    highest = groups.argsort(dim=-1, descending=True)[..., :n]
    mask = torch.zeros(groups.shape, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).reshape(scores.shape)
