"""The update is rounded to the dtype of w before it is added."""

FAILS = ["test_merge_rounds_once", "test_merged_weights"]


def merge(w: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """w + scale b a, rounded once to the dtype of w. [N, K]"""
    return w + (scale * (b.double() @ a.double())).to(w.dtype)
