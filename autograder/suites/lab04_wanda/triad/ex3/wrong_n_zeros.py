"""n zeros of m, as the authors' code counts."""

FAILS = [
    "test_equal_scores_in_groups",
    "test_exactly_n_of_every_m",
    "test_groups_against_sorting",
    "test_groups_by_hand",
]


def nm_mask(scores, n, m):
    groups = grouped(scores, n, m)
    highest = groups.argsort(dim=-1, descending=True)[..., : m - n]
    mask = torch.zeros(groups.shape, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).reshape(scores.shape)
