"""Scores of 1 for what is not zero, and exercise 3's mask."""


def compress(w):
    n, k = w.shape
    if k % 8 or not fits(w, 2, 4):
        raise ValueError(w.shape)
    mask = nm_mask((w != 0).float(), 2, 4)
    values = w[mask].reshape(n, k // 2)
    at = (torch.arange(k) % 4).expand(n, k)[mask].reshape(n, -1, 4)
    return values, (at * torch.tensor([1, 4, 16, 64])).sum(-1).to(torch.uint8)


def multiply(values, places, x):
    n, half = values.shape
    at = torch.stack([places.long() // 4**i % 4 for i in range(4)], -1).reshape(n, half)
    inputs = at + 4 * torch.arange(half // 2).repeat_interleave(2)
    picked = x.float()[..., inputs.flatten()].unflatten(-1, (n, half))
    return (picked * values.float()).sum(-1)
