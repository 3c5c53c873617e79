"""What help and hints say, word for word."""


def tiled_attention(T, S, read, write, scale, block_m, block_n):
    for i in range(0, T, block_m):
        q = read("q", i, min(T, i + block_m))
        rows, d = q.shape
        m, total, acc = torch.full((rows,), -torch.inf), torch.zeros(rows), torch.zeros(rows, d)
        for j in range(0, S, block_n):
            k = read("k", j, min(S, j + block_n))
            v = read("v", j, min(S, j + block_n))
            m, total, acc = online_update(m, total, acc, (q @ k.T) * scale, v)
        o, lse = finish(m, total, acc)
        write(i, i + rows, o, lse)


def attention_bytes(T, S, d, block_m, itemsize):
    blocks = (T + block_m - 1) // block_m
    return 2 * T * d * itemsize + blocks * 2 * S * d * itemsize + 4 * T


def stored_bytes(T, S, d, block_m, itemsize):
    blocks = (T + block_m - 1) // block_m
    return (2 * T * d + blocks * 2 * S * d + 4 * T * S) * itemsize


def two_walks_bytes(T, S, d, block_m, itemsize):
    blocks = (T + block_m - 1) // block_m
    return attention_bytes(T, S, d, block_m, itemsize) + blocks * S * d * itemsize
