"""All adapters for all rows, masked by 0."""

FAILS = ["test_an_unused_adapter", "test_what_must_not_spread"]


def batched_update(x, y, adapters, index):
    for j, (a, b, scale) in enumerate(adapters):
        y = y + (index == j)[:, None, None] * (scale * (x @ a.T @ b.T))
    return y
