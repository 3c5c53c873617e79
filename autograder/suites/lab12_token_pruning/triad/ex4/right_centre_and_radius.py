"""Centre and radius of a box: the bound is q c + |q| r."""


def page_boxes(k, page):
    short = -k.shape[2] % page
    low = F.pad(k, (0, 0, 0, short), value=float("inf")).unflatten(2, (-1, page)).amin(3)
    high = F.pad(k, (0, 0, 0, short), value=float("-inf")).unflatten(2, (-1, page)).amax(3)
    return low, high


def page_bounds(q, low, high):
    kind = torch.promote_types(torch.promote_types(q.dtype, low.dtype), torch.float32)
    q, group = q.double(), q.shape[1] // low.shape[1]
    low, high = (x.double().repeat_interleave(group, 1) for x in (low, high))
    centre, radius = (low + high) / 2, (high - low) / 2
    u = q @ centre.transpose(-1, -2) + q.abs() @ radius.transpose(-1, -2)
    return (u / math.sqrt(q.shape[-1])).to(kind)


def chosen_pages(u, pages, newest):
    P = u.shape[-1]
    i = torch.arange(P)
    bigger = (u[..., None, :] > u[..., :, None]) | (
        (u[..., None, :] == u[..., :, None]) & (i > i[:, None])
    )
    old = i < newest[:, None]  # [T, P]
    rank = (bigger & old[:, None, :]).sum(-1)  # how many older pages come before
    return ((rank < pages - 1) & old) | (i == newest[:, None])


def find_largest(q, low, high, page, read):
    q = q.double()
    u = q.clamp(min=0) @ high.double().T + q.clamp(max=0) @ low.double().T
    left, seen = set(range(len(u))), {}
    while left:
        i = max(left, key=lambda n: float(u[n]))
        if seen and float(u[i]) < max(seen.values()):
            break
        left.remove(i)
        seen |= {i * page + j: x for j, x in enumerate((read(i).double() @ q).tolist())}
    top = max(seen.values())
    return min(n for n, x in seen.items() if x == top), len(u) - len(left)
