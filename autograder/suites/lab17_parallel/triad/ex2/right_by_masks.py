"""Heads by masks over all of them; attention head by head."""


def heads_of(rank, size, heads, kv_heads):
    if heads % kv_heads:
        raise ValueError(f"{heads} is no multiple of {kv_heads}")
    start, stop = share(heads, rank, size)
    reads_of = torch.arange(heads) // (heads // kv_heads)
    mine = reads_of[start:stop]
    kept, place = mine.unique(return_inverse=True)
    return list(range(start, stop)), kept.tolist(), place.tolist()


def qkv_part(qkv, rank, size, heads, kv_heads):
    own, kept, _ = heads_of(rank, size, heads, kv_heads)
    wanted = torch.zeros(heads + 2 * kv_heads, dtype=torch.bool)
    for n in own:
        wanted[n] = True
    for n in kept:
        wanted[heads + n] = wanted[heads + kv_heads + n] = True
    d = qkv.shape[0] // len(wanted)
    return qkv[wanted.repeat_interleave(d)]


def out_part(out, rank, size, heads):
    columns = torch.arange(out.shape[1]).view(heads, -1)[slice(*share(heads, rank, size))]
    return out.index_select(1, columns.flatten())


def parallel_attention(x, qkv, out, reads, d, comm):
    y = torch.zeros_like(x)
    own = len(reads)
    keys = (len(qkv) // d - own) // 2

    def project(n):
        return (x @ qkv[n * d : n * d + d].T)[:, None]

    for i, place in enumerate(reads):
        head = attend(project(i), project(own + place), project(own + keys + place))[:, 0]
        y = y + head @ out[:, i * d : i * d + d].T
    return comm.all_reduce(y)


def cached_numbers(size, heads, kv_heads, d):
    largest = together = 0
    for rank in range(size):
        _, kept, _ = heads_of(rank, size, heads, kv_heads)
        together += 2 * len(kept) * d
        largest = max(largest, 2 * len(kept) * d)
    return largest, together
