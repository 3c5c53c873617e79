"""(b, a) is returned."""

FAILS = ["test_stacked_updates", "test_sums_of_updates"]


def stack(updates: list[tuple[Tensor, Tensor, float]]) -> tuple[Tensor, Tensor]:
    """(a, b) with b a = the sum of scale_i b_i a_i."""
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([scale * b for _, b, scale in updates], dim=1)
    return b, a
