"""Scores by their size: a negative score may stay."""

FAILS = ["test_equal_scores_in_groups", "test_exactly_n_of_every_m", "test_groups_against_sorting"]


def nm_mask(scores, n, m):
    groups = grouped(scores, n, m)
    highest = groups.abs().argsort(dim=-1, descending=True)[..., :n]
    mask = torch.zeros(groups.shape, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).reshape(scores.shape)
