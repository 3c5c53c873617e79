"""Neighbours m apart in place of next to each other."""

FAILS = [
    "test_equal_scores_in_groups",
    "test_exactly_n_of_every_m",
    "test_groups_against_sorting",
    "test_groups_by_hand",
]


def nm_mask(scores, n, m):
    grouped(scores, n, m)
    groups = scores.reshape(len(scores), m, -1).mT
    highest = groups.argsort(dim=-1, descending=True)[..., :n]
    mask = torch.zeros(groups.shape, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).mT.reshape(scores.shape)
