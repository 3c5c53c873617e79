"""The quantile of 1/2 in place of a zero of its own is left out on both sides."""

FAILS = ["test_levels", "test_the_nearest_level", "test_what_comes_back"]


def nf4_levels() -> Tensor:
    """The 16 levels in rising order. [16] float32"""
    p = 0.9677083
    above = torch.special.ndtri(torch.linspace(p, 0.5, 10, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(p, 0.5, 8, dtype=torch.float64)[:-1])
    levels = torch.cat([below, above.flip(0)])
    return (levels / levels.max()).float()
