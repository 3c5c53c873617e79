"""Survivors one by one, in plain Python; attention by torch's own function."""


def attend(q, k, v):
    group = q.shape[1] // k.shape[1]
    kind = torch.float64 if torch.float64 in (q.dtype, k.dtype) else torch.float32
    q, k = q.to(kind), k.to(kind).repeat_interleave(group, 1)
    T, S = q.shape[2], k.shape[2]
    seen = torch.arange(S) <= torch.arange(S - T, S)[:, None]
    ones = torch.eye(S, dtype=kind).expand(*k.shape[:2], S, S)
    p = F.scaled_dot_product_attention(q, k, ones, attn_mask=seen, scale=q.shape[-1] ** -0.5)
    return (p.double() @ v.double().repeat_interleave(group, 1)).to(v.dtype), p


def mass_of(p, kv_heads, decay=1.0):
    mass = torch.zeros_like(p[:, :, 0])
    for row in p.unbind(2):
        mass = decay * mass + row
    return mass.unflatten(1, (kv_heads, -1)).sum(2)


def survivors(score, positions, size, sinks, recent):
    if size < 1 or min(sinks, recent) < 0 or sinks + recent > size:
        raise ValueError(f"{size}, {sinks}, {recent}")

    def of_row(scores, at):
        n = len(scores)

        def key(i):
            return (at[i] < sinks or i >= n - recent, scores[i], i)

        return sorted(sorted(range(n), key=key)[-size:])

    B, G, S = score.shape
    flat = (x.reshape(-1, S).tolist() for x in (score, positions))
    rows = [of_row(s, a) for s, a in zip(*flat, strict=True)]
    return torch.tensor(rows).view(B, G, -1)
