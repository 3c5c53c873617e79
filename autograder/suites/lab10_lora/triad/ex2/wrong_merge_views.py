"""view of the weight, which fails for a transposed one."""

FAILS = ["test_merged_weights"]


def merge(w, a, b, scale):
    total = w.view(-1).double() + scale * (b.double() @ a.double()).view(-1)
    return total.to(w.dtype).view(w.shape)
