"""Rows without an adapter get + 0, which makes 0.0 of -0.0."""

FAILS = ["test_mixed_batches"]


def batched_update(
    x: Tensor, y: Tensor, adapters: list[tuple[Tensor, Tensor, float]], index: Tensor
) -> Tensor:
    """y [B, T, N] with the update of adapter index[i] added to row i; -1: none."""
    update = torch.zeros_like(y)
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        if rows.any():
            update[rows] = scale * (x[rows] @ a.T @ b.T)
    return y + update
