"""log2(e) goes into the queries, and the state is kept to base 2, without helpers."""

import math


def tiled_attention(T, S, read, write, scale, block_m, block_n):
    log2_e = math.log2(math.e)
    for first in range(0, T, block_m):
        rows = min(block_m, T - first)
        q = read("q", first, first + rows) * (scale * log2_e)
        m, total, acc = torch.full((rows, 1), -torch.inf), torch.zeros(rows, 1), 0.0
        for start in range(0, S, block_n):
            stop = min(start + block_n, S)
            s = q @ read("k", start, stop).T
            new = torch.maximum(m, s.amax(dim=-1, keepdim=True))
            factor, p = torch.exp2(m - new), torch.exp2(s - new)
            total = factor * total + p.sum(-1, keepdim=True)
            acc = factor * acc + p @ read("v", start, stop)
            m = new
        write(first, first + rows, acc / total, ((m + total.log2()) / log2_e)[:, 0])
