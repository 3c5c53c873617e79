"""Python loops."""


def nm_mask(scores, n, m):
    if m < 1 or not 0 <= n <= m or scores.shape[1] % m:
        raise ValueError
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    for i, row in enumerate(scores.tolist()):
        for start in range(0, len(row), m):
            order = sorted(range(start, start + m), key=lambda j: -row[j])
            mask[i, order[:n]] = True
    return mask


def fits(w, n, m):
    if m < 1 or not 0 <= n <= m or w.shape[1] % m:
        raise ValueError
    return not any(
        sum(value != 0 for value in row[s : s + m]) > n
        for row in w.tolist()
        for s in range(0, len(row), m)
    )
