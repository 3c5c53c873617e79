"""A random sketch of r + 6 directions: exact for few columns only."""

FAILS = ["test_the_nearest_of_rank_r", "test_the_nearest_matrix"]


def factor(delta, r):
    if not 1 <= r <= min(delta.shape):
        raise ValueError(r)
    u, s, v = torch.svd_lowrank(delta.double(), q=min(r + 6, *delta.shape), niter=2)
    return v.T[:r].float(), (u[:, :r] * s[:r]).float()
