"""The hints, line by line."""


def act_order(h):
    return torch.argsort(h.diagonal(), descending=True)


def gptq_ordered(w, h, bits, group, static, damping=0.01):
    k = w.shape[1]
    order = act_order(h)
    back = order.argsort()
    known = torch.arange(k) // group
    if not static:
        permuted = w[:, order], h[order][:, order]
        codes, scale, zero = gptq_blocked(*permuted, bits, k, group, "fresh", damping)
        return codes[:, back], scale, zero, known[back]
    silent = w.clone()
    silent[:, h.diagonal() == 0] = 0
    parts = [min_max(silent[:, i : i + group], bits) for i in range(0, k, group)]
    scale, zero = torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)
    wide = scale[:, known][:, order], zero[:, known][:, order]
    codes = gptq(w[:, order], h[order][:, order], *wide, bits, damping)
    return codes[:, back], scale, zero, known


def dequantize(codes, scale, zero, g_idx):
    return ((codes - zero[:, g_idx]) * scale[:, g_idx]).float()


def stored_bits(shape, bits, group, g_idx, scale_bits, zero_bits, index_bits):
    n, k = shape
    groups = math.ceil(k / group)
    total = n * k * bits + n * groups * (scale_bits + zero_bits)
    if not torch.equal(g_idx, torch.arange(k) // group):
        total += k * index_bits
    return total
