"""A part that weighs less than e^-5 of the other is dropped."""

FAILS = ["test_merges"]


def merge(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    safe = lse.masked_fill(lse == -torch.inf, 0.0)
    weight_a, weight_b = (lse_a - safe).exp(), (lse_b - safe).exp()
    weight_a = weight_a.masked_fill(lse_a < lse_b - 5, 0.0)
    weight_b = weight_b.masked_fill(lse_b < lse_a - 5, 0.0)
    return weight_a[:, None] * o_a + weight_b[:, None] * o_b, lse
