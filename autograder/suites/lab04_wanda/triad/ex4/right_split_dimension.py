"""view, which is enough to split a dimension and not to join two."""


def compress(w):
    n, k = w.shape
    if k % 8:
        raise ValueError(f"K = {k}")
    groups = w.view(n, k // 4, 4)
    used = groups.ne(0)
    if used.sum(-1).max() > 2:
        raise ValueError("three of four")
    rank = used.long() * 4 - torch.arange(4)  # highest: the first that is not zero
    at = rank.topk(2).indices.sort().values
    quads = at.reshape(n, -1, 4)
    bits = sum(quads[..., i] * 4**i for i in range(4))
    return torch.take_along_dim(groups, at, -1).reshape(n, -1), bits.byte()


def bitmap_bits(shape, kept, value_bits):
    return shape[0] * shape[1] + value_bits * kept
