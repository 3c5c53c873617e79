"""All of W^T W times G, summed in its blocks, in float32."""


def unit_scores(w, gram, size):
    product = (w.float().T @ w.float()) * gram.float()
    k = len(product)
    blocks = product.reshape(k // size, size, k // size, size).sum((1, 3))
    return blocks.diagonal().clamp(min=0).sqrt()


def remove_units(writers, reader, keep, size):
    def cut(tensor, dim):
        units = tensor.unflatten(dim, (-1, size)).index_select(dim, keep)
        return units.flatten(dim, dim + 1)

    return [cut(w, 0) for w in writers], cut(reader, 1)
