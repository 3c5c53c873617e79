"""The factor of the first update is used for all."""

FAILS = ["test_stacked_updates", "test_sums_of_updates"]


def stack(updates: list[tuple[Tensor, Tensor, float]]) -> tuple[Tensor, Tensor]:
    """(a, b) with b a = the sum of scale_i b_i a_i."""
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([updates[0][2] * b for _, b, _ in updates], dim=1)
    return a, b
