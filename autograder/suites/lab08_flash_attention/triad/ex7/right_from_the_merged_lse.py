"""Weights exp(own lse - merged lse): their sum is 1 but for the rounding of lse."""


def merge_parts(o, lse):
    whole = lse.logsumexp(0)
    base = torch.where(whole == -torch.inf, torch.zeros_like(whole), whole)
    return ((lse - base).exp()[..., None] * o).sum(0), whole
