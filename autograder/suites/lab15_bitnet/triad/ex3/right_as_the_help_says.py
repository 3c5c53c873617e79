"""Help and hints, word for word."""


def pack(codes):
    if (codes < -1).any() or (codes > 1).any():
        raise ValueError("codes are -1, 0 or 1")
    digits = codes.to(torch.int32) + 1
    missing = -codes.shape[1] % 5
    digits = torch.cat([digits, torch.ones(len(codes), missing, dtype=torch.int32)], dim=1)
    total = torch.zeros(len(codes), digits.shape[1] // 5, dtype=torch.int32)
    for i in range(5):
        total = total + digits[:, i::5] * 3**i
    return total.to(torch.uint8)


def unpack(words, length):
    if words.shape[1] != -(-length // 5):
        raise ValueError("another number of bytes")
    if (words > 242).any():
        raise ValueError("a byte above 242")
    columns = []
    for j in range(words.shape[1]):
        for i in range(5):
            columns.append(words[:, j].to(torch.int32) // 3**i % 3 - 1)
    return torch.stack(columns, dim=1)[:, :length].to(torch.int8)


def product(x, codes, scale):
    sums = []
    for row in codes:
        sums.append(x[..., row == 1].sum(-1) - x[..., row == -1].sum(-1))
    return torch.stack(sums, dim=-1) * scale
