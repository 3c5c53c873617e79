"""Blocks of 64."""

FAILS = ["test_equal_scales", "test_scales_by_hand", "test_scales_come_back"]


def quantize_scales(absmax: Tensor, levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(codes [blocks] uint8, second [ceil(blocks / 256)], mean []) of absmax [blocks]."""
    mean = absmax.mean()
    blocks = F.pad(absmax - mean, (0, -len(absmax) % 64)).reshape(-1, 64)
    second = blocks.abs().amax(1)
    scaled = blocks / torch.where(second > 0, second, 1.0)[:, None]
    codes = (scaled[..., None] - levels).abs().argmin(-1).flatten()[: len(absmax)]
    return codes.to(torch.uint8), second, mean
