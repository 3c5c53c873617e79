"""The mean is subtracted."""

FAILS = ["test_blocks_at_the_mean", "test_equal_scales", "test_scales_come_back"]


def dequantize_scales(codes: Tensor, second: Tensor, mean: Tensor, levels: Tensor) -> Tensor:
    """absmax [blocks] that the codes stand for."""
    of_block = second.repeat_interleave(256)[: len(codes)]
    return levels[codes.long()] * of_block - mean
