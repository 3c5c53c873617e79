"""The root of each singular value on either side, and sums one after the other."""


def merge(w, a, b, scale):
    total = w.to(torch.float64).clone()
    for i in range(len(a)):
        total += scale * torch.outer(b[:, i].double(), a[i].double())
    return total.to(w.dtype)


def stack(updates):
    a, b, scale = updates[0]
    a, b = a, scale * b
    for next_a, next_b, factor_of in updates[1:]:
        a = torch.cat((a, next_a), 0)
        b = torch.cat((b, factor_of * next_b), -1)
    return a, b


def factor(delta, r):
    n, k = delta.shape
    if r not in range(1, min(n, k) + 1):
        raise ValueError(f"{r}")
    u, s, v = torch.svd(delta.double())
    root = s[:r].sqrt()
    return (v[:, :r] * root).T.float(), (u[:, :r] * root).float()
