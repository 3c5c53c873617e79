"""Values of a group are counted in a byte."""

FAILS = ["test_fits_just_or_not"]


def fits(w, n, m):
    if m < 1 or not 0 <= n <= m or w.shape[1] % m:
        raise ValueError(n, m)
    count = (w != 0).reshape(len(w), -1, m).sum(-1, dtype=torch.uint8)
    return bool((count <= n).all())
