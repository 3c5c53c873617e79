"""Loops; running sums."""


def numbers(tokens, dim, size=None, page=None, pages=None):
    for n in (tokens, dim, size, page, pages):
        if n is not None and n < 1:
            raise ValueError("below 1")
    if size is not None and (page is not None or pages is not None):
        raise ValueError("size and pages")
    if (page is None) is not (pages is None):
        raise ValueError("page and pages")
    if size is not None:
        kept = min(size, tokens)
        before = min(size, tokens - 1)
        return kept * (2 * dim + 1), (before + 1) * (2 * dim + 1)
    if page is not None:
        started = -(-tokens // page)
        last = tokens - (started - 1) * page
        others = min(pages - 1, started - 1) * page
        summaries = 2 * dim * started
        return 2 * dim * tokens + summaries, 2 * dim * (last + others) + summaries
    return 2 * dim * tokens, 2 * dim * tokens


def paired(a, b):
    if a.dim() != 2 or b.dim() != 2 or tuple(a.shape) != tuple(b.shape) or a.shape[0] < 2:
        raise ValueError("shapes")
    n = a.shape[0]
    x, y = a.double().mean(dim=1), b.double().mean(dim=1)
    d = x - y
    error = d.std() / n**0.5
    unpaired = (x.var() / n + y.var() / n) ** 0.5
    return float(d.mean()), float(error), float(unpaired)


def future_mass(p, kv_heads, horizon=None):
    B, H, T, _ = p.shape
    group = H // kv_heads
    rows = torch.stack(
        [p[:, g * group : (g + 1) * group].double().sum(1) for g in range(kv_heads)], 1
    )
    U = torch.cat([torch.zeros(B, kv_heads, 1, T, dtype=torch.float64), rows.cumsum(2)], 2)
    future = torch.zeros(B, kv_heads, T, T, dtype=torch.float64)
    for t in range(T):
        end = T if horizon is None else min(t + 1 + horizon, T)
        future[:, :, t, : t + 1] = (U[:, :, end] - U[:, :, t + 1])[..., : t + 1]
    return future.to(p.dtype)


def best_mass(p, size):
    return p.sort(dim=-1, descending=True).values[..., :size].sum(-1)
