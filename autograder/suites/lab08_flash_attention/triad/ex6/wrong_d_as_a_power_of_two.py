"""d is rounded up to a power of two, as tiles are."""

FAILS = ["test_choices"]


def choose_blocks(T: int, S: int, d: int, most: int) -> tuple[int, int]:
    """(block_m, block_n) with the fewest bytes among those that fit. Raises ValueError."""
    wide = 1 << (d - 1).bit_length()
    sizes = [2**n for n in range(4, 10)]
    fit = [(m, n) for m in sizes for n in sizes if 2 * m * wide + 2 * n * wide + m * n <= most]
    if not fit:
        raise ValueError(f"blocks of 16 with d = {d} need more than {most} elements")
    return min(fit, key=lambda b: (attention_bytes(T, S, d, b[0], 2), b[0], -b[1]))
