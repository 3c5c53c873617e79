"""A group is taken to be empty where its sum is 0."""

FAILS = ["test_fits_just_or_not"]


def fits(w, n, m):
    if m < 1 or not 0 <= n <= m or w.shape[1] % m:
        raise ValueError(n, m)
    groups = w.reshape(len(w), -1, m)
    count = (groups != 0).sum(-1).masked_fill(groups.sum(-1) == 0, 0)
    return bool((count <= n).all())
