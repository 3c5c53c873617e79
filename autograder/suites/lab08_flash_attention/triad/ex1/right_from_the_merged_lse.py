"""Weights exp(own lse - merged lse): their sum is 1 but for the rounding of lse."""


def merge(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    base = torch.where(lse == -torch.inf, torch.zeros_like(lse), lse)
    return torch.exp(lse_a - base)[:, None] * o_a + torch.exp(lse_b - base)[:, None] * o_b, lse
