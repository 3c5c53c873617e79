"""A threshold: of equal scores none goes."""

FAILS = ["test_masks_of_rows", "test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    if not 0 <= sparsity <= 1:
        raise ValueError(sparsity)
    s = scores(w, norms)
    zeros = int(s.shape[1] * sparsity)
    if zeros == s.shape[1]:
        return torch.zeros(s.shape, dtype=torch.bool)
    return s >= s.sort(dim=1).values[:, zeros : zeros + 1]
