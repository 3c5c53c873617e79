"""A table of all bytes; sums over the places of each sign, by index."""

import itertools

ALL = [tuple(reversed(t)) for t in itertools.product((-1, 0, 1), repeat=5)]  # byte -> codes
BYTE = {codes: byte for byte, codes in enumerate(ALL)}


def pack(codes):
    rows = codes.tolist()
    if any(c not in (-1, 0, 1) for row in rows for c in row):
        raise ValueError("no trit")
    found = []
    for row in rows:
        row = row + [0] * (-len(row) % 5)
        found.append([BYTE[tuple(row[i : i + 5])] for i in range(0, len(row), 5)])
    return torch.tensor(found, dtype=torch.uint8)


def unpack(words, length):
    if words.shape[1] * 5 < length or (words.shape[1] - 1) * 5 >= length:
        raise ValueError("bytes do not fit the length")
    if int(words.max()) >= len(ALL):
        raise ValueError("no five trits")
    found = [[c for byte in row for c in ALL[byte]][:length] for row in words.tolist()]
    return torch.tensor(found, dtype=torch.int8)


def product(x, codes, scale):
    y = torch.empty(*x.shape[:-1], len(codes), dtype=x.dtype)
    for n, row in enumerate(codes):
        plus, minus = (row > 0).nonzero()[:, 0], (row < 0).nonzero()[:, 0]
        y[..., n] = x.index_select(-1, plus).sum(-1) - x.index_select(-1, minus).sum(-1)
    return y * scale
