"""Bounds in float64 whatever comes, and pages with ties that cannot help left out."""


def page_bounds(q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    heads, group = low.shape[1], q.shape[1] // low.shape[1]
    of_head = [h // group for h in range(heads * group)]
    low, high = (x.double()[:, of_head, None] for x in (low, high))  # [B, H, 1, P, d]
    q = q.double()[:, :, :, None]
    return torch.maximum(q * low, q * high).sum(-1) / q.shape[-1] ** 0.5


def find_largest(
    q: Tensor, low: Tensor, high: Tensor, page: int, read: Callable[[int], Tensor]
) -> tuple[int, int]:
    q = q.double()
    u = torch.where(q > 0, q * high.double(), q * low.double()).sum(-1).tolist()
    best, index, n = -math.inf, None, 0
    for i in sorted(range(len(u)), key=lambda i: (-u[i], i)):
        if u[i] < best or (u[i] == best and i * page > index):
            continue
        products = (read(i).double() @ q).tolist()
        n += 1
        for j, x in enumerate(products, start=i * page):
            if x > best or (x == best and j < index):
                best, index = x, j
    return index, n
