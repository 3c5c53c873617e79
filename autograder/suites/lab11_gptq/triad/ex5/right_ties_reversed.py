"""Of equal diagonal entries the last channel first; codes scattered back; float64 then float32."""


def act_order(h):
    k = len(h)
    d = torch.diagonal(h).tolist()
    return torch.tensor(sorted(range(k), key=lambda j: (-d[j], -j)), dtype=torch.int64)


def gptq_ordered(w, h, bits, group, static, damping=0.01):
    order = act_order(h)
    k = len(order)
    stored = torch.div(torch.arange(k), group, rounding_mode="floor")
    codes = torch.empty(w.shape, dtype=torch.int64)
    if static:
        own, dead = damped(h, damping)
        inverse_factor(own)
        plain = w.double().clone()
        plain[:, dead] = 0
        pairs = [min_max(plain[:, stored == g], bits) for g in range(int(stored[-1]) + 1)]
        scale, zero = (torch.cat([p[i] for p in pairs], 1) for i in (0, 1))
        at = stored[order]
        moved = gptq(w[:, order], h[order][:, order], scale[:, at], zero[:, at], bits, damping)
        codes[:, order] = moved
        return codes, scale, zero, stored
    moved, scale, zero = gptq_blocked(
        w=w[:, order],
        h=h[order][:, order],
        bits=bits,
        block=1,
        group=group,
        grids="fresh",
        damping=damping,
    )
    codes[:, order] = moved
    g_idx = torch.empty(k, dtype=torch.int64)
    g_idx[order] = stored
    return codes, scale, zero, g_idx


def dequantize(codes, scale, zero, g_idx):
    s, z = scale.index_select(1, g_idx), zero.index_select(1, g_idx)
    return ((codes.double() - z) * s).to(torch.float32)


def stored_bits(shape, bits, group, g_idx, scale_bits, zero_bits, index_bits):
    n, k = shape
    known = bool((g_idx == torch.arange(k).div(group, rounding_mode="floor")).all())
    per_row = k * bits + ((k - 1) // group + 1) * (scale_bits + zero_bits)
    return per_row * n + (k * index_bits if not known else 0)
