"""block_m and block_n are exchanged."""

FAILS = ["test_tiles", "test_random_tiles"]


def tiled_attention(T: int, S: int, read, write, scale: float, block_m: int, block_n: int) -> None:
    """Attention of T queries over S keys; read("q", start, stop) -> rows; write(..., o, lse)."""
    for first in range(0, T, block_n):
        last = min(first + block_n, T)
        q = read("q", first, last)
        m = torch.full((last - first,), -torch.inf)
        state = m, torch.zeros(last - first), torch.zeros_like(q)
        for start in range(0, S, block_m):
            stop = min(start + block_m, S)
            s = scale * q @ read("k", start, stop).T
            state = online_update(*state, s, read("v", start, stop))
        write(first, last, *finish(*state))
