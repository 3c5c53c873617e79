"""second repeated as a whole."""

FAILS = ["test_blocks_at_the_mean", "test_scales_come_back", "test_what_scales_come_back_as"]


def dequantize_scales(codes: Tensor, second: Tensor, mean: Tensor, levels: Tensor) -> Tensor:
    """absmax [blocks] that the codes stand for."""
    of_block = second.repeat(256)[: len(codes)]
    return levels[codes.long()] * of_block + mean
