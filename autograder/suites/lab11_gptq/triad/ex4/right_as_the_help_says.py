"""The hints, line by line; static grids are those of the weight before all."""


def gptq_blocked(w, h, bits, block, group, grids, damping=0.01):
    if grids not in ("fresh", "lazy", "static"):
        raise ValueError(f"grids={grids!r}")
    if block < 1 or group < 1:
        raise ValueError(f"block={block}, group={group}")
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = w.double().clone()
    w[:, dead] = 0
    before = w.clone()
    k = w.shape[1]
    errors, codes = torch.zeros_like(w), torch.zeros(w.shape, dtype=torch.int64)
    scales, zeros = [], []
    for start in range(0, k, block):
        stop = min(start + block, k)
        begun = w.clone()
        for j in range(start, stop):
            if j % group == 0:
                now = {"fresh": w, "lazy": begun, "static": before}[grids].clone()
                if grids == "fresh":
                    now[:, stop:] -= errors[:, start:j] @ u[start:j, stop:]
                scale, zero = min_max(now[:, j : j + group], bits)
                scales.append(scale)
                zeros.append(zero)
            codes[:, [j]] = nearest(w[:, [j]], scale, zero, bits)
            errors[:, [j]] = (w[:, [j]] - values(codes[:, [j]], scale, zero)) / u[j, j]
            w[:, j:stop] -= errors[:, [j]] * u[j, j:stop]
        w[:, stop:] -= errors[:, start:stop] @ u[start:stop, stop:]
    return codes, torch.cat(scales, 1), torch.cat(zeros, 1)


def updates(n, k, block):
    total = 0
    for start in range(0, k, block):
        b = min(block, k - start)
        total += b * (b - 1) // 2
        total += k - (start + b)
    return n * total
