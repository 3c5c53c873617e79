"""The help and the last hint, line by line."""


def column_part(w, b, rank, size):
    start, stop = share(len(w), rank, size)
    return w[start:stop].clone(), b[start:stop].clone() if b is not None else None


def row_part(w, rank, size):
    start, stop = share(w.shape[-1], rank, size)
    return w[:, start:stop].clone()


def row_linear(x, w, b, comm):
    y = comm.all_reduce(F.linear(x, w))
    if b is not None:
        y = y + b
    return y


def parallel_mlp(x, gate, up, down, comm):
    inner = F.silu(F.linear(x, *gate)) * F.linear(x, *up)
    return row_linear(inner, down[0], down[1], comm)
