"""Updates everything behind at once, and keeps what lazy and static grids may see."""


def gptq_blocked(w, h, bits, block, group, grids, damping=0.01):
    if grids not in {"fresh", "lazy", "static"}:
        raise ValueError(grids)
    if min(block, group) < 1:
        raise ValueError((block, group))
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    now = torch.where(dead, torch.zeros((), dtype=torch.float64), w.double())
    static = now.clone()
    begun, parts, codes = now.clone(), [], torch.zeros_like(now, dtype=torch.int64)
    for j in range(now.shape[1]):
        if j % block == 0:
            begun = now.clone()
        if j % group == 0:
            source = {"fresh": now, "lazy": begun, "static": static}[grids]
            parts.append(min_max(source[:, j : j + group].clone(), bits))
        s, z = parts[-1]
        codes[:, [j]] = nearest(now[:, [j]], s, z, bits)
        e = (now[:, [j]] - values(codes[:, [j]], s, z)) / u[j, j]
        now[:, j:] -= e * u[j, j:]
    return codes, torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)


def updates(n, k, block):
    full, rest = divmod(k, block)
    inside = full * (block * (block - 1) // 2) + rest * (rest - 1) // 2
    behind = sum(k - min((i + 1) * block, k) for i in range(full))
    return int(n) * (inside + behind)
