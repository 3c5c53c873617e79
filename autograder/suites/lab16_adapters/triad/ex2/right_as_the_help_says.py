"""The hints, word for word."""


def joined(prompts, texts):
    if len(texts) == 0 or len(prompts) != len(texts):
        raise ValueError("need a row, and one prompt for each text")
    rows = [torch.cat([p, t]) for p, t in zip(prompts, texts, strict=True)]
    s = max(len(row) for row in rows)
    x = torch.stack([torch.cat([row.new_zeros(s - len(row), row.shape[1]), row]) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    positions = torch.arange(s)[None] - (s - lengths)
    causal = torch.tril(torch.ones(s, s, dtype=torch.bool))
    mask = causal & (positions >= 0)[:, None, None, :]
    mask = mask | torch.eye(s, dtype=torch.bool)
    return x, positions.clamp(min=0), mask


def go_on(positions, mask):
    last = mask[:, :, -1:, :]
    one = torch.ones(len(mask), 1, 1, 1, dtype=torch.bool)
    return positions[:, -1:] + 1, torch.cat([last, one], -1)
