"""All kept choices sorted by expert, one split, one sum at the end."""


def dispatch_combine(x, experts, gates, kept, run):
    k = experts.shape[1]
    places = kept.flatten().nonzero().flatten()
    if len(places) == 0:
        return torch.zeros_like(x)
    ids = experts.flatten()[places]
    order = ids.argsort()
    places, ids = places[order], ids[order]
    names, counts = ids.unique_consecutive(return_counts=True)
    tokens = places // k
    outs = [
        run(e, rows)
        for e, rows in zip(names.tolist(), x[tokens].split(counts.tolist()), strict=True)
    ]
    weighted = torch.cat(outs).float() * gates.flatten()[places][:, None]
    y = torch.zeros(x.shape).index_add(0, tokens, weighted)
    return y.to(x.dtype)
