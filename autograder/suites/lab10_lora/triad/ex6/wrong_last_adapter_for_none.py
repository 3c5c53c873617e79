"""-1 is Python's last adapter."""

FAILS = ["test_an_unused_adapter", "test_mixed_batches", "test_rows_of_their_own"]


def batched_update(x, y, adapters, index):
    y = y.clone()
    for i, j in enumerate(index.tolist()):
        if adapters:
            a, b, scale = adapters[j]
            y[i] += scale * (x[i] @ a.T @ b.T)
    return y
