"""What the hints say, word for word."""


def quantize_scales(absmax, levels):
    mean = absmax.mean()
    left = absmax - mean
    blocks = F.pad(left, (0, -len(left) % 256)).reshape(-1, 256)
    second = blocks.abs().amax(1)
    scaled = blocks / torch.where(second == 0, 1.0, second)[:, None]
    codes = (scaled[..., None] - levels).abs().argmin(-1).flatten()[: len(left)]
    return codes.to(torch.uint8), second, mean


def dequantize_scales(codes, second, mean, levels):
    return levels[codes.long()] * second.repeat_interleave(256)[: len(codes)] + mean


def nf4_bits(n, double):
    blocks = math.ceil(n / 64)
    if double:
        return 4 * n + 8 * blocks + 32 * math.ceil(blocks / 256) + 32
    return 4 * n + 32 * blocks
