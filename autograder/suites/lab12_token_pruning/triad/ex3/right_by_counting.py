"""Numbers by lists of tokens; the future by a product with a band of ones."""


def numbers(tokens, dim, size=None, page=None, pages=None):
    if any(n is not None and n < 1 for n in (tokens, dim, size, page, pages)):
        raise ValueError("a number below 1")
    if (size is not None) + (page is not None) + (pages is not None) not in (0, 1, 2):
        raise ValueError("too much")
    if (size is not None and (page or pages)) or bool(page) != bool(pages):
        raise ValueError("size, or page and pages")
    if size:
        return (2 * dim + 1) * min(size, tokens), (2 * dim + 1) * min(size + 1, tokens)
    if not page:
        return 2 * dim * tokens, 2 * dim * tokens
    lengths = [page] * (tokens // page) + ([tokens % page] if tokens % page else [])
    read = lengths[-1] + sum(lengths[:-1][: pages - 1])
    return 2 * dim * (tokens + len(lengths)), 2 * dim * (read + len(lengths))


def paired(a, b):
    if a.ndim != 2 or a.shape != b.shape or a.shape[0] == 1:
        raise ValueError("not pairs")
    rows = torch.stack([a, b]).double().mean(2)
    d, n = rows[0] - rows[1], rows.shape[1]

    def square(x):
        return float(((x - x.mean()) ** 2).sum()) / (n - 1) / n

    return d.mean().item(), math.sqrt(square(d)), math.sqrt(square(rows[0]) + square(rows[1]))


def future_mass(p, kv_heads, horizon=None):
    T = p.shape[-1]
    t, i = torch.arange(T)[:, None], torch.arange(T)[None]
    band = (i > t) & (i <= t + (T if horizon is None else horizon))
    rows = p.double().unflatten(1, (kv_heads, -1)).sum(2)
    return (band.double() @ rows).tril().to(p.dtype)


def best_mass(p, size):
    least = p.sort(dim=-1).values
    return least[..., max(0, p.shape[-1] - size) :].sum(-1)
