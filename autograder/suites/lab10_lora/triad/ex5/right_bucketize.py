"""Middles of levels, and sizes gathered by index."""


def quantize_scales(absmax, levels):
    mean = torch.mean(absmax)
    x = absmax - mean
    block = torch.arange(len(x)) // 256
    second = torch.zeros(int(block[-1]) + 1).scatter_reduce(0, block, x.abs(), "amax")
    divisor = torch.where(second > 0, second, torch.ones_like(second))
    codes = torch.bucketize(x / divisor[block], (levels[:-1] + levels[1:]) / 2)
    return codes.byte(), second, mean


def dequantize_scales(codes, second, mean, levels):
    block = torch.div(torch.arange(codes.numel()), 256, rounding_mode="floor")
    return torch.addcmul(mean, levels.gather(0, codes.long()), second[block])


def nf4_bits(n, double):
    total, blocks = 4 * n, (n + 63) // 64
    if not double:
        return total + 32 * blocks
    return total + 8 * blocks + 32 * ((blocks + 255) // 256) + 32
