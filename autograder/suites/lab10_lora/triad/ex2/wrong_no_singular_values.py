"""The singular values are left out."""

FAILS = ["test_the_nearest_matrix", "test_the_nearest_of_rank_r", "test_what_is_no_rank"]


def factor(delta: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """The (a, b) of rank r whose product is nearest to delta [N, K].

    Raises ValueError unless 1 <= r <= min(N, K).
    """
    if not 1 <= r <= min(delta.shape):
        raise ValueError(f"r={r} is no rank of {tuple(delta.shape)}")
    u, sizes, v = torch.linalg.svd(delta.double(), full_matrices=False)
    return v[:r].float(), u[:, :r].float()
