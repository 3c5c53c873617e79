"""All scores of at least the n-th: of equal ones too many stay."""

FAILS = ["test_equal_scores_in_groups", "test_exactly_n_of_every_m"]


def nm_mask(scores, n, m):
    groups = grouped(scores, n, m)
    if n == 0:
        return torch.zeros(scores.shape, dtype=torch.bool)
    limit = groups.sort(dim=-1, descending=True).values[..., n - 1 : n]
    return (groups >= limit).reshape(scores.shape)
