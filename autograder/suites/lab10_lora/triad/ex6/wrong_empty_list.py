"""An empty list fails."""

FAILS = ["test_rows_of_their_own", "test_what_must_not_spread"]


def batched_update(
    x: Tensor, y: Tensor, adapters: list[tuple[Tensor, Tensor, float]], index: Tensor
) -> Tensor:
    """y [B, T, N] with the update of adapter index[i] added to row i; -1: none."""
    y, first = y.clone(), adapters[0]
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        y[rows] += scale * (x[rows] @ a.T @ b.T)
    return y
