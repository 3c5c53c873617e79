"""y is changed."""

FAILS = ["test_an_unused_adapter", "test_mixed_batches", "test_rows_of_their_own"]


def batched_update(
    x: Tensor, y: Tensor, adapters: list[tuple[Tensor, Tensor, float]], index: Tensor
) -> Tensor:
    """y [B, T, N] with the update of adapter index[i] added to row i; -1: none."""
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        y[rows] += scale * (x[rows] @ a.T @ b.T)
    return y
