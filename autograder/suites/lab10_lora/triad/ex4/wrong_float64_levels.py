"""Levels in float64."""

FAILS = ["test_blocks_of_64", "test_levels", "test_what_comes_back"]


def nf4_levels() -> Tensor:
    """The 16 levels in rising order. [16] float32"""
    p = 0.9677083
    above = torch.special.ndtri(torch.linspace(p, 0.5, 9, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(p, 0.5, 8, dtype=torch.float64)[:-1])
    levels = torch.cat([below, torch.zeros(1, dtype=torch.float64), above.flip(0)])
    return levels / levels.max()
