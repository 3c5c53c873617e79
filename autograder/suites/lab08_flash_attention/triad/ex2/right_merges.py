"""Attention of each tile, merged by lse."""


def tiled_attention(T, S, read, write, scale, block_m, block_n):
    for first in range(0, T, block_m):
        last = min(first + block_m, T)
        q, found = read("q", first, last), None
        for start in range(0, S, block_n):
            stop = min(start + block_n, S)
            s = scale * q @ read("k", start, stop).T
            part = s.softmax(-1) @ read("v", start, stop), s.logsumexp(-1)
            found = part if found is None else merge(*found, *part)
        write(first, last, *found)
