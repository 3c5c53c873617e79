"""Something tiny is subtracted to decide among equal scores: it decides among tiny ones."""

FAILS = ["test_groups_against_sorting"]


def nm_mask(scores, n, m):
    groups = grouped(scores, n, m)
    groups = groups - 1e-6 * torch.arange(m)
    highest = groups.argsort(dim=-1, descending=True)[..., :n]
    mask = torch.zeros(groups.shape, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).reshape(scores.shape)
