"""Updates below 1e-6 are taken for nothing."""

FAILS = ["test_mixed_batches"]


def batched_update(x, y, adapters, index):
    if ((index < -1) | (index >= len(adapters))).any():
        raise ValueError("index")
    y = y.clone()
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        if abs(scale) > 1e-6:
            y[rows] += scale * (x[rows] @ a.T @ b.T)
    return y
