"""What the hints say, word for word."""


def nf4_levels():
    p = 0.9677083
    above = torch.special.ndtri(torch.linspace(p, 0.5, 9)[:-1])
    below = -torch.special.ndtri(torch.linspace(p, 0.5, 8)[:-1])
    levels = torch.cat([above, below, torch.zeros(1)]).sort().values
    return levels / levels.max()


def quantize_nf4(w):
    if w.numel() < 1 or not torch.isfinite(w).all():
        raise ValueError(w.shape)
    flat = w.float().flatten()
    n = len(flat)
    blocks = F.pad(flat, (0, -n % 64)).reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    scaled = blocks / torch.where(absmax == 0, 1.0, absmax)[:, None]
    codes = (scaled[..., None] - nf4_levels()).abs().argmin(-1)
    return codes.flatten()[:n].to(torch.uint8), absmax


def dequantize_nf4(codes, absmax, shape):
    n = len(codes)
    return (nf4_levels()[codes.long()] * absmax.repeat_interleave(64)[:n]).reshape(shape)
