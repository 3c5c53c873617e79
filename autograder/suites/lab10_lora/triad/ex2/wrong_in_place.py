"""w is changed."""

FAILS = ["test_merge_rounds_once", "test_merged_weights"]


def merge(w, a, b, scale):
    total = (w.double() + scale * (b.double() @ a.double())).to(w.dtype)
    w.copy_(total)
    return w
