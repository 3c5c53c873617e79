"""Blocks of scales are rounded down."""

FAILS = ["test_bits_by_hand", "test_every_bit"]


def nf4_bits(n: int, double: bool) -> int:
    """Bits of n weights: codes, scales, and what their own quantization needs."""
    blocks = math.ceil(n / 64)
    if not double:
        return 4 * n + 32 * blocks
    return 4 * n + 8 * blocks + 32 * (blocks // 256) + 32
