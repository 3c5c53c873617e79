"""Looks for NaN and infinity among the first 64 weights."""

FAILS = ["test_there_and_back"]


def nf4_levels():
    p = 0.9677083
    above = torch.special.ndtri(torch.linspace(p, 0.5, 9, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(p, 0.5, 8, dtype=torch.float64)[:-1])
    levels = torch.cat([above, below, torch.zeros(1, dtype=torch.float64)])
    return (levels / levels.max()).sort().values.float()


def quantize_nf4(w):
    if w.numel() == 0 or not w.flatten()[:64].isfinite().all():
        raise ValueError("empty, NaN or infinity")
    n = w.numel()
    flat = w.float().reshape(-1)
    blocks = F.pad(flat, (0, -n % 64)).reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    quotients = blocks.double() / torch.where(absmax == 0, 1.0, absmax).double()[:, None]
    levels = nf4_levels().double()
    codes = (quotients[..., None] - levels).abs().argmin(-1)
    return codes.flatten()[:n].to(torch.uint8), absmax


def dequantize_nf4(codes, absmax, shape):
    values = nf4_levels()[codes.long()]
    return (values * absmax.repeat_interleave(64)[: len(codes)]).reshape(shape)
