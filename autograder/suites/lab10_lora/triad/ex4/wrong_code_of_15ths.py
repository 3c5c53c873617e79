"""A code is taken for a place of even steps."""

FAILS = ["test_there_and_back", "test_what_comes_back"]


def dequantize_nf4(codes: Tensor, absmax: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What the codes stand for, float32."""
    of_block = absmax.repeat_interleave(64)[: len(codes)]
    return ((codes.float() / 7.5 - 1) * of_block).reshape(shape)
