"""Shift arithmetic on codes; the bound through odds."""


def split_bits(k, bits, low):
    if not (bits >= 2 and 0 <= low < bits):
        raise ValueError(f"{bits}, {low}")
    most = 2 ** (bits - 1) - 1
    scale = k.double().abs().amax(-1, keepdim=True) / most
    scale[scale == 0] = 1.0
    code = torch.round(k.double() / scale).long()
    return code >> low, code & (2**low - 1), scale


def rough_scores(q, high, scale, low):
    group, half = q.shape[1] // high.shape[1], (2**low - 1) / 2
    q = q.double() * q.shape[-1] ** -0.5
    q = q.unflatten(1, (-1, group))  # [B, Hkv, group, T, d]
    k = ((high << low) + half) * scale
    scores = torch.einsum("bgntd,bgsd->bgnts", q, k).flatten(1, 2)
    error = torch.einsum("bgnt,bgs->bgnts", q.abs().sum(-1), half * scale[..., 0]).flatten(1, 2)
    return scores, error


def worst_shift(top, error):
    top, error = torch.broadcast_tensors(top.double(), error.double())
    rest = 1 - top
    gained = torch.sigmoid(2 * error + rest.log() - top.log()) - rest
    flat = torch.expm1(error.clamp(max=300)) / (torch.exp(error.clamp(max=300)) + 1)
    return gained.where(rest * (1 + torch.exp(error.clamp(max=700))) <= 1, flat)


def progressive(q, k, bits, low, tolerance):
    high, rest, scale = split_bits(k, bits, low)
    later = torch.ones(q.shape[2], k.shape[2]).triu(k.shape[2] - q.shape[2] + 1) > 0

    def softmax(codes, low):
        s, e = rough_scores(q, codes, scale, low)
        return s.masked_fill(later, -math.inf).softmax(-1), e.masked_fill(later, -1.0).amax(-1)

    p, error = softmax(high, low)
    fetched = worst_shift(p.amax(-1), error) > tolerance
    p[fetched] = softmax((high << low) + rest, 0)[0][fetched]
    return p, fetched
