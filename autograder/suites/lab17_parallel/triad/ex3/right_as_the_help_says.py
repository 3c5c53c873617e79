"""The help and the last hint, line by line."""


def embed(ids, table, start, comm):
    here = (start <= ids) & (ids < start + table.shape[0])
    x = torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
    x[here] = table[(ids - start)[here]]
    return comm.all_reduce(x)


def cross_entropy(hidden, head, targets, start, comm):
    logits = hidden @ head.T
    if logits.dtype != torch.float64:
        logits = logits.float()
    if len(head):
        top = logits.max(1).values
    else:
        top = torch.full((len(hidden),), -math.inf, dtype=logits.dtype)
    top = comm.all_reduce(top, "max")
    sums = (logits - top[:, None]).exp().sum(1)
    own = torch.zeros_like(top)
    for t, target in enumerate(targets.tolist()):
        if start <= target < start + len(head):
            own[t] = logits[t, target - start] - top[t]
    sums, own = comm.all_reduce(torch.stack([sums, own]))
    return torch.log(sums) - own


def next_token(hidden, head, start, comm):
    logits = (hidden @ head.T).double()
    floor = torch.full((len(hidden), 1), -math.inf, dtype=torch.float64)
    value, at = torch.cat([logits, floor], 1).max(1)
    pairs = comm.all_gather(torch.stack([value, (start + at).double()]))
    best, found = pairs[0]
    for value, at in pairs[1:]:  # a later rank must be larger to be first
        found = torch.where(value > best, at, found)
        best = torch.maximum(value, best)
    return found.long()
