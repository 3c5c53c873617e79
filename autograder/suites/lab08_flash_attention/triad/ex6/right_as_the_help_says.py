"""What help and hints say, word for word."""


def choose_blocks(T, S, d, most):
    pairs = []
    for block_m in (16, 32, 64, 128, 256, 512):
        for block_n in (16, 32, 64, 128, 256, 512):
            if 2 * block_m * d + 2 * block_n * d + block_m * block_n <= most:
                moved = attention_bytes(T, S, d, block_m, 2)
                pairs.append((moved, -block_n, block_m))
    if not pairs:
        raise ValueError("nothing fits")
    _, block_n, block_m = min(pairs)
    return block_m, -block_n
