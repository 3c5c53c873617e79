"""view, which is enough to split a dimension."""


def unit_scores(w, gram, size):
    units = w.view(len(w), -1, size).double().transpose(0, 1)
    blocks = gram.double().reshape(units.shape[0], size, -1, size).diagonal(dim1=0, dim2=2)
    squares = ((units.mT @ units) * blocks.permute(2, 0, 1)).sum((1, 2))
    return squares.clamp(min=0).sqrt().float()


def remove_units(writers, reader, keep, size):
    def cut(w):
        return w.view(-1, size, *w.shape[1:])[keep].flatten(0, 1)

    columns = (keep[:, None] * size + torch.arange(size)).flatten()
    return [cut(w) for w in writers], reader[:, columns]
