"""Help and hints, word for word."""


def absmean(w, rows):
    wide = w.float()
    mean = wide.abs().mean(dim=1, keepdim=True) if rows else wide.abs().mean().view(1, 1)
    scale = torch.clamp(mean, min=1e-5)
    codes = torch.clamp(torch.round(wide / scale), -1, 1)
    return codes.to(torch.int8), scale


def least_error(w):
    wide = w.double()
    sizes, order = torch.sort(wide.abs(), dim=1, descending=True)
    s = torch.cumsum(sizes, dim=1)
    k = torch.arange(1, wide.shape[1] + 1)
    best = torch.argmax(s**2 / k, dim=1)
    codes = torch.zeros(w.shape, dtype=torch.int8)
    scale = torch.zeros(len(w), 1)
    for i in range(len(w)):
        count = int(best[i]) + 1
        places = order[i, :count]
        codes[i, places] = wide[i, places].sign().to(torch.int8)
        scale[i] = s[i, count - 1] / count
    return codes, scale
