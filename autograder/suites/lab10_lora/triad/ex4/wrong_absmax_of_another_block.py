"""The absmax of the next block."""

FAILS = ["test_blocks_of_64", "test_there_and_back", "test_what_comes_back"]


def dequantize_nf4(codes: Tensor, absmax: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What the codes stand for, float32."""
    of_block = absmax.roll(-1).repeat_interleave(64)[: len(codes)]
    return (nf4_levels()[codes.long()] * of_block).reshape(shape)
