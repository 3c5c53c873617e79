"""A block, then the rest by the same function; grids are found by two copies of the weight."""


def gptq_blocked(w, h, bits, block, group, grids, damping=0.01):
    if grids not in ("fresh", "lazy", "static") or min(block, group) < 1:
        raise ValueError("not known")
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    first = w.double().masked_fill(dead, 0)
    now, k = first.clone(), w.shape[1]
    parts = []
    done = []

    def run(start, lazily):
        if start >= k:
            return
        stop = min(start + block, k)
        for j in range(start, stop):
            if j % group == 0:
                source = {"fresh": now, "lazy": lazily, "static": first}[grids]
                parts.append(min_max(source[:, j : j + group], bits))
            s, z = parts[-1]
            c = nearest(now[:, [j]], s, z, bits)
            done.append(c)
            e = (now[:, [j]] - values(c, s, z)) / u[j, j]
            now[:, j:] = now[:, j:] - e @ u[[j], j:]
        run(stop, now.clone())

    run(0, now.clone())
    return (
        torch.hstack(done),
        torch.hstack([s for s, _ in parts]),
        torch.hstack([z for _, z in parts]),
    )


def updates(n, k, block):
    full, rest = divmod(k, block)
    inside = full * (block * (block - 1) // 2) + rest * (rest - 1) // 2
    behind = sum(k - block * (i + 1) for i in range(full))
    return n * (inside + behind)
