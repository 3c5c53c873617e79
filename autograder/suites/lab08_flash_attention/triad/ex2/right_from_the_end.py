"""Blocks from the last to the first, and keys too; written at the end."""


def tiled_attention(T, S, read, write, scale, block_m, block_n):
    results = []
    for first in reversed(range(0, T, block_m)):
        q = scale * read("q", first, min(first + block_m, T))
        state = torch.full((len(q),), -torch.inf), torch.zeros(len(q)), torch.zeros_like(q)
        for start in reversed(range(0, S, block_n)):
            stop = min(start + block_n, S)
            v = read("v", start, stop)
            state = online_update(*state, q @ read("k", start, stop).T, v)
        results.append((first, first + len(q), *finish(*state)))
    for result in results:
        write(*result)


def attention_bytes(T, S, d, block_m, itemsize):
    walks = len(range(0, T, block_m))
    return sum([T * d * itemsize, T * d * itemsize, walks * 2 * S * d * itemsize, T * 4])
