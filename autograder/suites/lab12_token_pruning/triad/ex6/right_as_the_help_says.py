"""g and a* as the help derives them; powers that cannot overflow."""


def split_bits(k, bits, low):
    if bits < 2 or low < 0 or low >= bits:
        raise ValueError("bits")
    k = k.double()
    top = k.abs().max(dim=-1, keepdim=True).values
    scale = torch.where(top > 0, top / (2 ** (bits - 1) - 1), torch.ones_like(top))
    code = (k / scale).round().to(torch.int64)
    high = torch.floor(code.double() / 2**low).to(torch.int64)
    return high, code - (high << low), scale


def rough_scores(q, high, scale, low):
    B, H, T, d = q.shape
    group = H // high.shape[1]
    scores, errors = [], []
    for h in range(H):
        k = (high[:, h // group].double() * 2**low + (2**low - 1) / 2) * scale[:, h // group]
        x = q[:, h].double() / d**0.5
        scores.append(x @ k.transpose(1, 2))
        half = (2**low - 1) / 2 * scale[:, h // group, :, 0]
        errors.append(x.abs().sum(-1)[:, :, None] * half[:, None, :])
    return torch.stack(scores, 1), torch.stack(errors, 1)


def worst_shift(top, error):
    top, error = top.double(), error.double()
    best = 1 / (1 + torch.exp(error))
    rest = 1 - top
    shrink = torch.exp(-2 * error)
    sharp = rest * (1 - rest) * (1 - shrink) / (rest + (1 - rest) * shrink).clamp(min=1e-300)
    return torch.where(rest > best, torch.tanh(error / 2), sharp)


def progressive(q, k, bits, low, tolerance):
    high, rest, scale = split_bits(k, bits, low)
    rough, error = rough_scores(q, high, scale, low)
    full, _ = rough_scores(q, high * 2**low + rest, scale, 0)
    T, S = rough.shape[-2:]
    seen = torch.arange(S)[None] <= torch.arange(S - T, S)[:, None]
    p = rough.masked_fill(~seen, float("-inf")).softmax(-1)
    exact = full.masked_fill(~seen, float("-inf")).softmax(-1)
    most = (error * seen).amax(-1)
    fetched = worst_shift(p.max(-1).values, most) > tolerance
    return torch.where(fetched.unsqueeze(-1), exact, p), fetched
