"""NormalDist of the standard library, middles of levels, block by block."""

from statistics import NormalDist


def nf4_levels():
    quantile, p = NormalDist().inv_cdf, 0.9677083
    values = [0.0]
    values += [quantile(p - (p - 0.5) * i / 8) for i in range(8)]
    values += [-quantile(p - (p - 0.5) * i / 7) for i in range(7)]
    largest = max(values)
    return torch.tensor([v / largest for v in sorted(values)])


def quantize_nf4(w):
    if not len(w.flatten()) or w.isnan().any() or w.isinf().any():
        raise ValueError("finite weights, one or more")
    levels = nf4_levels()
    middles = (levels[1:] + levels[:-1]) / 2
    codes, absmax = [], []
    for part in w.reshape(-1).to(torch.float32).split(64):
        m = part.abs().max()
        absmax.append(m)
        codes.append(torch.bucketize(part / (m if m > 0 else 1.0), middles))
    return torch.cat(codes).to(torch.uint8), torch.stack(absmax)


def dequantize_nf4(codes, absmax, shape):
    values = nf4_levels()[codes.int()].clone()
    for i, m in enumerate(absmax):
        values[64 * i : 64 * (i + 1)] *= m
    return values.view(shape)
