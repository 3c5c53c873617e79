"""1e-12 is added to second where it is divided by."""

FAILS = ["test_scales_of_all_sizes"]


def quantize_scales(absmax, levels):
    mean = absmax.mean()
    blocks = F.pad(absmax - mean, (0, -len(absmax) % 256)).reshape(-1, 256)
    second = blocks.abs().amax(1)
    scaled = blocks / (second + 1e-12)[:, None]
    codes = (scaled[..., None] - levels).abs().argmin(-1).flatten()[: len(absmax)]
    return codes.to(torch.uint8), second, mean
