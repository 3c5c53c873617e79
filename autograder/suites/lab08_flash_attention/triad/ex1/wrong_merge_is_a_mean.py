"""A merge is the mean of both."""

FAILS = ["test_merge", "test_merges"]


def merge(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """(o [T, d], lse [T]) over the keys of both."""
    lse = torch.logaddexp(lse_a, lse_b)
    safe = lse.masked_fill(lse == -torch.inf, 0.0)
    weight_a, weight_b = (lse_a - safe).exp(), (lse_b - safe).exp()
    return (o_a + o_b) / 2, lse
