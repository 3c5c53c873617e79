"""Probabilities from 1/2 outwards, and the nearer of two neighbours."""


def nf4_levels():
    p = 0.9677083

    def outwards(n):
        steps = torch.arange(n + 1, dtype=torch.float64) / n
        return torch.special.ndtri(0.5 + (p - 0.5) * steps)

    levels = torch.cat([-outwards(7).flip(0)[:-1], outwards(8)])
    return (levels / levels[-1]).to(torch.float32)


def quantize_nf4(w):
    if w.numel() == 0 or not bool(w.abs().float().amax() < math.inf):
        raise ValueError("nothing, NaN or infinity")
    levels, x = nf4_levels(), w.flatten().float()
    absmax = torch.tensor([part.abs().max() for part in x.split(64)])
    x = x / absmax.clamp(min=1e-38)[torch.arange(len(x)) // 64]
    above = torch.searchsorted(levels, x.contiguous()).clamp(1, 15)
    lower = x - levels[above - 1] <= levels[above] - x
    return (above - lower.long()).to(torch.uint8), absmax


def dequantize_nf4(codes, absmax, shape):
    of_block = absmax[torch.arange(len(codes)) // 64]
    return torch.index_select(nf4_levels(), 0, codes.int()).mul(of_block).reshape(*shape)
