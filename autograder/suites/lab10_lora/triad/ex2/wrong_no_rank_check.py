"""No check of r."""

FAILS = ["test_what_is_no_rank"]


def factor(delta: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """The (a, b) of rank r whose product is nearest to delta [N, K].

    Raises ValueError unless 1 <= r <= min(N, K).
    """
    u, sizes, v = torch.linalg.svd(delta.double(), full_matrices=False)
    return v[:r].float(), (u[:, :r] * sizes[:r]).float()
