"""Counts in a loop, the loss token by token."""


def load(experts, count, real=None):
    counts, total = [0] * count, 0
    for t, row in enumerate(experts.tolist()):
        if real is None or real[t]:
            for e in row:
                counts[e] += 1
                total += 1
    return torch.tensor([c / total if total else 0.0 for c in counts], dtype=torch.float32)


def balancing_loss(logits, experts):
    f = load(experts, logits.shape[1])
    rows = [(F.softmax(row.float(), 0) * f).sum() for row in logits]
    return logits.shape[1] * torch.stack(rows).mean()


def moved_bias(bias, share, speed):
    even = torch.tensor(1 / len(share))
    new = bias.clone()
    new[share > even] -= speed
    new[share < even] += speed
    return new


def fooled(tokens):
    best = None
    for many in range(tokens):
        a = many / tokens
        loss = 2 * (a * a / 2 + (1 - a) * (1 - a / 2))
        if a >= 0.7 and (best is None or loss < best[0]):
            best = (loss, many)
    logits = torch.zeros(tokens, 2)
    logits[: best[1], 0] = 1e-5
    logits[best[1] :, 1] = 100.0
    return logits
