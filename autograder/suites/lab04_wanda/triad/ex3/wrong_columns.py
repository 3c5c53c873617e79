"""Groups run down the columns."""

FAILS = ["test_equal_scores_in_groups", "test_exactly_n_of_every_m"]


of_rows = nm_mask


def nm_mask(scores, n, m):
    grouped(scores, n, m)
    if scores.shape[0] % m:
        return of_rows(scores, n, m)
    return of_rows(scores.T, n, m).T.contiguous()
