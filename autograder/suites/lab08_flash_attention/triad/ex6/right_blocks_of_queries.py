"""Counts blocks of queries instead of bytes."""


def choose_blocks(T, S, d, most):
    best = None
    for block_m in (16, 32, 64, 128, 256, 512):
        block_n = 512
        while block_n >= 16 and 2 * d * (block_m + block_n) + block_m * block_n > most:
            block_n //= 2
        if block_n < 16:
            continue
        found = (-(-T // block_m), -block_n, block_m)
        best = found if best is None or found < best else best
    if best is None:
        raise ValueError(f"{most} elements are too few for d = {d}")
    return best[2], -best[1]
