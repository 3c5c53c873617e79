"""As nano-vllm: rank 0 alone adds the bias, before the sum; parts by tensor_split."""


def column_part(w, b, rank, size):
    def cut(t):
        return torch.tensor_split(t, size)[rank].detach().clone()

    return cut(w), (cut(b) if b is not None else None)


def row_part(w, rank, size):
    return torch.tensor_split(w, size, dim=1)[rank].clone(memory_format=torch.contiguous_format)


def row_linear(x, w, b, comm):
    if comm.rank != 0:
        b = None
    return comm.all_reduce(torch.nn.functional.linear(x, w, b))


def parallel_mlp(x, gate, up, down, comm):
    g = x @ gate[0].T
    u = x @ up[0].T
    if gate[1] is not None:
        g = g + gate[1]
    if up[1] is not None:
        u = u + up[1]
    h = g * torch.sigmoid(g) * u
    return row_linear(h, *down, comm)
