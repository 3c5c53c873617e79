"""The help and the last hint, line by line."""


def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    chunks = [c.clone() for c in torch.tensor_split(x.flatten(), p)]
    for second in (False, True):
        for s in range(p - 1):
            out = (r - s + second) % p
            into = (r - s - 1 + second) % p
            if r % 2 == 0:
                comm.send(chunks[out], right)
                got = comm.recv(chunks[into], left)
            else:
                got = comm.recv(chunks[into], left)
                comm.send(chunks[out], right)
            chunks[into] = got if second else chunks[into] + got
    return torch.cat(chunks).reshape(x.shape)


def sent_bytes(kind, n, size):
    if kind == "all_reduce":
        return 2 * (size - 1) * n / size
    if kind in ("reduce_scatter", "all_to_all"):
        return (size - 1) * n / size
    if kind == "all_gather":
        return (size - 1) * n
    raise ValueError(kind)
