"""A threshold: of equal scores all go."""

FAILS = ["test_masks_of_rows", "test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    if not 0 <= sparsity <= 1:
        raise ValueError(sparsity)
    s = scores(w, norms)
    zeros = int(s.shape[1] * sparsity)
    if zeros == 0:
        return torch.ones(s.shape, dtype=torch.bool)
    return s > s.sort(dim=1).values[:, zeros - 1 : zeros]
