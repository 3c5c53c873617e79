"""The factor is left out of the merge."""

FAILS = ["test_merge_rounds_once", "test_merged_weights"]


def merge(w: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """w + scale b a, rounded once to the dtype of w. [N, K]"""
    return (w.double() + (b.double() @ a.double())).to(w.dtype)
