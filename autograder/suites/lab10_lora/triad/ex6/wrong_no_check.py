"""An index that names no adapter is passed over."""

FAILS = ["test_rows_of_their_own"]


def batched_update(x, y, adapters, index):
    y = y.clone()
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        y[rows] += scale * (x[rows] @ a.T @ b.T)
    return y
