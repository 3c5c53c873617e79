"""The order as a matrix; both kinds through exercise 4's or exercise 3's functions."""


def act_order(h):
    return torch.sort(-torch.diag(h), stable=True).indices


def gptq_ordered(w, h, bits, group, static, damping=0.01):
    k = w.shape[1]
    turn = torch.eye(k, dtype=torch.float64)[act_order(h)]  # [K, K], rows in the new order
    w_new, h_new = w.double() @ turn.T, turn @ h @ turn.T
    g_idx = torch.div(torch.arange(k), group, rounding_mode="floor")
    if static:
        w = w.double() * (h.diagonal() != 0)
        grids = [min_max(w[:, i : i + group], bits) for i in range(0, k, group)]
        scale, zero = torch.cat([s for s, _ in grids], 1), torch.cat([z for _, z in grids], 1)
        wide = [part[:, g_idx] @ turn.T for part in (scale, zero)]
        codes = gptq(w_new, h_new, *wide, bits, damping)
    else:
        codes, scale, zero = gptq_blocked(w_new, h_new, bits, 3, group, "fresh", damping)
        g_idx = (g_idx.double() @ turn).long()
    return (codes.double() @ turn).long(), scale, zero, g_idx


def dequantize(codes, scale, zero, g_idx):
    wide = [torch.index_select(part, 1, g_idx) for part in (scale, zero)]
    return torch.mul(codes - wide[1], wide[0]).to(torch.float32)


def stored_bits(shape, bits, group, g_idx, scale_bits, zero_bits, index_bits):
    groups = len(range(0, shape[1], group))
    index = index_bits * shape[1]
    if bool((g_idx == torch.arange(shape[1]) // group).all()):
        index = 0
    return shape[0] * (shape[1] * bits + groups * (scale_bits + zero_bits)) + index
