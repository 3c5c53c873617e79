"""Comparisons in place of rounding; the size of the k-th largest as a threshold, row by row."""


def absmean(w, rows):
    sizes = w.to(torch.float64).abs()
    mean = sizes.sum(1, keepdim=True) / w.shape[1] if rows else sizes.sum().view(1, 1) / w.numel()
    scale = mean.clamp_min(1e-5).to(torch.float32)
    half = w.to(torch.float32) / scale
    codes = (half > 0.5).to(torch.int8) - (half < -0.5).to(torch.int8)
    return codes, scale


def least_error(w):
    codes, scales = [], []
    for row in w.to(torch.float64):
        sizes = row.abs().sort().values.flip(0)
        gains = [(sizes[: k + 1].sum() ** 2 / (k + 1)).item() for k in range(min(len(row), 64))]
        if len(row) > 64:
            sums = sizes.cumsum(0)
            gains = (sums * sums / torch.arange(1, len(row) + 1)).tolist()
        k = gains.index(max(gains)) + 1
        kept = torch.zeros(len(row), dtype=torch.bool)
        kept[row.abs().argsort(descending=True)[:k]] = True
        codes.append((row.sign() * kept).to(torch.int8))
        scales.append(row.abs()[kept].mean().to(torch.float32))
    return torch.stack(codes), torch.stack(scales)[:, None]
