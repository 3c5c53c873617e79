"""Python loops over rows and groups."""


def compress(w):
    if w.shape[1] % 8:
        raise ValueError("K")
    values, places = [], []
    for row in w:
        kept, at = [], []
        for start in range(0, len(row), 4):
            group = row[start : start + 4]
            chosen = [j for j in range(4) if group[j] != 0]
            if len(chosen) > 2:
                raise ValueError("more than two")
            rest = [j for j in range(4) if j not in chosen]
            chosen = sorted(chosen + rest[: 2 - len(chosen)])
            kept += [group[j] for j in chosen]
            at += chosen
        values.append(torch.stack(kept))
        places.append(
            [sum(p << 2 * i for i, p in enumerate(at[b : b + 4])) for b in range(0, len(at), 4)]
        )
    return torch.stack(values), torch.tensor(places, dtype=torch.uint8)


def multiply(values, places, x):
    rows = []
    for value, byte in zip(values.float(), places.tolist(), strict=True):
        at = [b >> s & 3 for b in byte for s in (0, 2, 4, 6)]
        inputs = [4 * (i // 2) + p for i, p in enumerate(at)]
        rows.append((x[..., inputs] * value).sum(-1))
    return torch.stack(rows, dim=-1)


def stored_bits(shape, value_bits):
    return shape[0] * (shape[1] // 4) * (2 * value_bits + 4)
