"""Singular values below 1e-6 are taken for noise."""

FAILS = ["test_the_nearest_matrix"]


def factor(delta, r):
    if not 1 <= r <= min(delta.shape):
        raise ValueError(r)
    u, s, v = torch.linalg.svd(delta.double(), full_matrices=False)
    s = torch.where(s > 1e-6, s, 0.0)
    return v[:r].float(), (u[:, :r] * s[:r]).float()
