"""The lse of a merge is the larger one."""

FAILS = ["test_merge", "test_merges"]


def merge(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """(o [T, d], lse [T]) over the keys of both."""
    whole = torch.logaddexp(lse_a, lse_b)
    lse = torch.maximum(lse_a, lse_b)
    safe = whole.masked_fill(whole == -torch.inf, 0.0)
    weight_a, weight_b = (lse_a - safe).exp(), (lse_b - safe).exp()
    return weight_a[:, None] * o_a + weight_b[:, None] * o_b, lse
