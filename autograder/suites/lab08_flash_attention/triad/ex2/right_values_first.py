"""The value is read before the key, and everything is kept in a list of one state."""


def tiled_attention(T, S, read, write, scale, block_m, block_n):
    for first in range(0, T, block_m):
        q = read("q", first, min(first + block_m, T)) * scale
        states = [(torch.full((len(q),), -torch.inf), torch.zeros(len(q)), torch.zeros_like(q))]
        for start in range(0, S, block_n):
            v = read("v", start, min(start + block_n, S))
            k = read("k", start, min(start + block_n, S))
            states = [online_update(*states[-1], q @ k.mT, v)]
        write(first, first + len(q), *finish(*states[0]))
