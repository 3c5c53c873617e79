"""Maxima only: other ranks' rows are -inf; one log-sum-exp of each rank, gathered; ids below 0."""


def embed(ids, table, start, comm):
    own = (ids >= start) & (ids < start + len(table))
    x = table.new_full((*ids.shape, table.shape[1]), -math.inf)
    x[own] = table[ids[own] - start]
    return comm.all_reduce(x, "max")


def cross_entropy(hidden, head, targets, start, comm):
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logits = hidden.to(wide) @ head.to(wide).T
    whole, own = torch.full((2, len(hidden)), -math.inf, dtype=wide)
    if len(head):
        whole = logits.logsumexp(1)
    where = ((targets >= start) & (targets < start + len(head))).nonzero()[:, 0]
    own[where] = logits[where, targets[where] - start]
    sums, owns = torch.stack(comm.all_gather(torch.stack([whole, own]))).unbind(1)
    top = sums.amax(0)
    return (sums - top).exp().sum(0).log() + (top - owns.amax(0))


def next_token(hidden, head, start, comm):
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logits = hidden.to(wide) @ head.to(wide).T
    nothing = torch.full((len(hidden), 1), -math.inf, dtype=wide)
    top = comm.all_reduce(torch.cat([logits, nothing], 1).amax(1), "max")
    ids = torch.arange(start, start + len(head)).expand(logits.shape)
    ids = torch.where(logits == top[:, None], -ids, -(2**40))
    least = torch.cat([ids, torch.full((len(hidden), 1), -(2**40))], 1).amax(1)
    return -comm.all_reduce(least, "max")
