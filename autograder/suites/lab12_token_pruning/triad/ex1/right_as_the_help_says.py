"""A table of preferences, sorted; the rest as the help says."""


def attend(q, k, v):
    B, H, T, d = q.shape
    Hkv, S = k.shape[1:3]
    kind = torch.float64 if torch.float64 in (q.dtype, k.dtype) else torch.float32
    keys = k.to(kind).repeat_interleave(H // Hkv, dim=1)
    values = v.repeat_interleave(H // Hkv, dim=1)
    s = torch.einsum("bhtd,bhsd->bhts", q.to(kind), keys) / d**0.5
    for t in range(T):
        s[:, :, t, S - T + t + 1 :] = float("-inf")
    p = torch.softmax(s, dim=-1)
    out = torch.einsum("bhts,bhsd->bhtd", p.double(), values.double())
    return out.to(v.dtype), p


def mass_of(p, kv_heads, decay=1.0):
    B, H, T, S = p.shape
    mass = torch.zeros(B, kv_heads, S, dtype=p.dtype)
    group = H // kv_heads
    for h in range(H):
        for t in range(T):
            mass[:, h // group] += decay ** (T - 1 - t) * p[:, h, t]
    return mass


def survivors(score, positions, size, sinks, recent):
    if size < 1 or sinks < 0 or recent < 0 or sinks + recent > size:
        raise ValueError("no room")
    S = score.shape[-1]
    preferred = score.clone().masked_fill(positions < sinks, float("inf"))
    if recent:
        preferred[..., max(0, S - recent) :] = float("inf")
    turned = torch.flip(preferred, dims=[-1])
    order = torch.sort(turned, dim=-1, descending=True, stable=True).indices
    places = S - 1 - order[..., : min(size, S)]
    return torch.sort(places, dim=-1).values
