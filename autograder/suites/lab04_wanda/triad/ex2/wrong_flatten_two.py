"""Tokens are only the first two dimensions: flatten(0, 1)."""

FAILS = ["test_a_score_is_the_change", "test_norms_of_any_arrangement"]


def input_norms(x: Tensor) -> Tensor:
    return x.float().flatten(0, max(0, min(1, x.dim() - 2))).norm(dim=0)


def scores(w: Tensor, norms: Tensor) -> Tensor:
    return w.float().abs() * norms.float()


def wanda_mask(w: Tensor, norms: Tensor, sparsity: float) -> Tensor:
    return keep_share(scores(w, norms), sparsity, "row")
