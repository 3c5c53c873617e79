"""The help and the last hint, line by line."""


def dispatch_combine(x, experts, gates, kept, run):
    y = torch.zeros_like(x)
    for e in experts[kept].unique().tolist():
        token, choice = ((experts == e) & kept).nonzero(as_tuple=True)
        out = run(e, x[token]) * gates[token, choice, None].to(x.dtype)
        y = y.index_add(0, token, out)
    return y
