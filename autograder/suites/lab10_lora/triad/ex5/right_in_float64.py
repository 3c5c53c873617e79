"""Float64, blocks by split, the nearer of two neighbours."""


def quantize_scales(absmax, levels):
    exact, levels = absmax.double(), levels.double()
    mean = exact.sum() / len(exact)
    codes, second = [], []
    for part in (exact - mean.float().double()).split(256):
        largest = part.abs().max()
        second.append(largest)
        x = part / largest if largest > 0 else part
        above = torch.searchsorted(levels, x.contiguous()).clamp(1, 255)
        down = x - levels[above - 1] < levels[above] - x
        codes.append(above - down.long())
    return torch.cat(codes).to(torch.uint8), torch.stack(second).float(), mean.float()


def dequantize_scales(codes, second, mean, levels):
    parts = levels[codes.int()].split(256)
    return torch.cat([part * s for part, s in zip(parts, second, strict=True)]) + mean


def nf4_bits(n, double):
    scales = -(-n // 64)
    metadata = scales * 8 + (-(-scales // 256) + 1) * 32 if double else scales * 32
    return n * 4 + metadata
