"""Loops over rows and columns; fillings see the whole rectangle, and stand at the last position."""


def joined(prompts, texts):
    prompts, texts = list(prompts), list(texts)
    if len(prompts) != len(texts) or len(texts) < 1:
        raise ValueError("rows")
    lengths = [p.shape[0] + t.shape[0] for p, t in zip(prompts, texts, strict=True)]
    s, d = max(lengths), texts[0].shape[1]
    rows, positions, masks = [], [], []
    for p, t, n in zip(prompts, texts, lengths, strict=True):
        rows.append(torch.vstack([torch.zeros(s - n, d, dtype=t.dtype), p, t]))
        positions.append([s - 1] * (s - n) + list(range(n)))
        mask = torch.zeros(s, s, dtype=torch.bool)
        mask[: s - n] = True
        for i in range(s - n, s):
            mask[i, s - n : i + 1] = True
        masks.append(mask)
    return torch.stack(rows), torch.tensor(positions), torch.stack(masks).unsqueeze(1)


def go_on(positions, mask):
    new = F.pad(mask[:, :, -1:], (0, 1), value=True)
    return positions[:, [-1]] + 1, new
