"""Ends by the sign of q; a heap-like loop over pages."""


def page_boxes(k, page):
    starts = range(0, k.shape[2], page)
    low = [k[:, :, i : i + page].min(dim=2).values for i in starts]
    high = [k[:, :, i : i + page].max(dim=2).values for i in starts]
    return torch.stack(low, dim=2), torch.stack(high, dim=2)


def page_bounds(q, low, high):
    kind = torch.float64 if torch.float64 in (q.dtype, low.dtype) else torch.float32
    group = q.shape[1] // low.shape[1]
    low = low.to(kind).repeat_interleave(group, dim=1)[:, :, None]  # [B, H, 1, P, d]
    high = high.to(kind).repeat_interleave(group, dim=1)[:, :, None]
    q = q.to(kind)[:, :, :, None]  # [B, H, T, 1, d]
    corner = torch.where(q > 0, high, low)
    return (q * corner).sum(-1) / q.shape[-1] ** 0.5


def chosen_pages(u, pages, newest):
    B, H, T, P = u.shape
    chosen = torch.zeros(B, H, T, P, dtype=torch.bool)
    for t in range(T):
        last = int(newest[t])
        chosen[:, :, t, last] = True
        if pages > 1 and last > 0:
            turned = torch.flip(u[:, :, t, :last], dims=[-1])
            order = torch.sort(turned, dim=-1, descending=True, stable=True).indices[
                ..., : pages - 1
            ]
            chosen[:, :, t, :last] = torch.zeros_like(turned, dtype=torch.bool).scatter(
                -1, last - 1 - order, True
            )
    return chosen


def find_largest(q, low, high, page, read):
    q = q.double()
    bounds = torch.where(q > 0, high.double(), low.double()) @ q
    best, where, count = None, None, 0
    for i in sorted(range(len(bounds)), key=lambda i: -float(bounds[i])):
        bound = float(bounds[i])
        if best is not None and bound < best:
            break
        count += 1
        for j, product in enumerate((read(i).double() @ q).tolist()):
            n = i * page + j
            if best is None or product > best or (product == best and n < where):
                best, where = product, n
    return where, count
