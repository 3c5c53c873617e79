"""By index lists and einsum; zeros where a rank has nothing."""


def column_part(w, b, rank, size):
    rows = torch.arange(*share(w.size(0), rank, size))
    return w.index_select(0, rows), None if b is None else b.index_select(0, rows)


def row_part(w, rank, size):
    return w.index_select(1, torch.arange(*share(w.size(1), rank, size)))


def row_linear(x, w, b, comm):
    term = torch.einsum("...k,nk->...n", x, w)
    total = comm.all_reduce(term.contiguous())
    return total if b is None else torch.add(total, b)


def parallel_mlp(x, gate, up, down, comm):
    def column(layer):
        weight, bias = layer
        y = torch.einsum("...k,nk->...n", x, weight)
        return y if bias is None else y + bias

    return row_linear(F.silu(column(gate)) * column(up), down[0], down[1], comm)
