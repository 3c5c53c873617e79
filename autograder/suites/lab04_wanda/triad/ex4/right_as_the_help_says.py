"""The help and the hints, line by line."""


def compress(w):
    if w.shape[1] % 8 or not fits(w, 2, 4):
        raise ValueError
    groups = w.reshape(w.shape[0], w.shape[1] // 4, 4)
    order = (groups == 0).to(torch.uint8).sort(dim=-1, stable=True).indices
    at = order[..., :2].sort(dim=-1).values
    packed = at.reshape(w.shape[0], -1, 4) * torch.tensor([1, 4, 16, 64])
    return groups.gather(-1, at).reshape(w.shape[0], -1), packed.sum(-1).to(torch.uint8)


def multiply(values, places, x):
    at = torch.stack([places.int() >> shift & 3 for shift in (0, 2, 4, 6)], -1).flatten(1)
    inputs = 4 * (torch.arange(values.shape[1]) // 2) + at
    tokens = x.reshape(-1, x.shape[-1])
    y = torch.stack([(t[inputs] * values).sum(1) for t in tokens.float()])
    return y.reshape(*x.shape[:-1], values.shape[0])


def stored_bits(shape, value_bits):
    return shape[0] * (shape[1] // 2) * (value_bits + 2)
