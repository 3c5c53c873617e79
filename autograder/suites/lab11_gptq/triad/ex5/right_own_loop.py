"""A loop of its own through the channels in their order, with inverses of what is left."""


def act_order(h):
    diagonal = [h[j, j].item() for j in range(len(h))]
    return torch.tensor(sorted(range(len(h)), key=lambda j: diagonal[j], reverse=True))


def gptq_ordered(w, h, bits, group, static, damping=0.01):
    order = act_order(h).tolist()
    h, dead = damped(h, damping)
    inverse_factor(h)
    now = w.double().clone()
    now[:, dead] = 0
    n, k = now.shape
    lists = [list(range(i, min(i + group, k))) for i in range(0, k, group)]
    if not static:
        lists = [[order[i] for i in part] for part in lists]
    member = {j: g for g, part in enumerate(lists) for j in part}
    grids = {g: min_max(now[:, part], bits) for g, part in enumerate(lists)}
    codes = torch.empty(n, k, dtype=torch.int64)
    for i, j in enumerate(order):
        g = member[j]
        if not static and i % group == 0:
            grids[g] = min_max(now[:, lists[g]], bits)
        s, z = grids[g]
        codes[:, j : j + 1] = nearest(now[:, j : j + 1], s, z, bits)
        free = torch.zeros(k, dtype=torch.bool)
        free[order[i + 1 :]] = True
        now, _ = change_one(now, h, j, values(codes[:, j : j + 1], s, z)[:, 0], free)
    scale = torch.cat([grids[g][0] for g in range(len(lists))], 1)
    zero = torch.cat([grids[g][1] for g in range(len(lists))], 1)
    return codes, scale, zero, torch.tensor([member[j] for j in range(k)])


def dequantize(codes, scale, zero, g_idx):
    w = torch.zeros(codes.shape, dtype=torch.float64)
    for j, g in enumerate(g_idx.tolist()):
        w[:, j] = (codes[:, j].double() - zero[:, g]) * scale[:, g]
    return w.float()


def stored_bits(shape, bits, group, g_idx, scale_bits, zero_bits, index_bits):
    n, k = shape
    total = n * k * bits + n * -(-k // group) * (scale_bits + zero_bits)
    if any(g != j // group for j, g in enumerate(g_idx.tolist())):
        total += k * index_bits
    return total
