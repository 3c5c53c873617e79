"""One loop over columns; what each weight has seen of repairs follows from its place."""


def gptq_blocked(w, h, bits, block, group, grids, damping=0.01):
    if grids not in ["fresh", "lazy", "static"]:
        raise ValueError(grids)
    if block < 1 or group < 1:
        raise ValueError(f"block {block}, group {group}")
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w0 = w.double()
    w0 = torch.where(dead, torch.zeros_like(w0), w0)
    n, k = w0.shape
    e = torch.zeros(n, k, dtype=torch.float64)
    strict = u.triu(1)

    def seen_of(columns, done):  # the weight at some columns after the first `done` repairs
        return w0[:, columns] - e[:, :done] @ strict[:done, columns]

    scale = torch.zeros(n, -(-k // group), dtype=torch.float64)
    zero, codes = torch.zeros_like(scale), torch.zeros(n, k, dtype=torch.int64)
    for j in range(k):
        if j % group == 0:
            done = {"fresh": j, "lazy": j - j % block, "static": 0}[grids]
            part = seen_of(slice(j, min(k, j + group)), done)
            s, z = min_max(part, bits)
            scale[:, j // group], zero[:, j // group] = s[:, 0], z[:, 0]
        g = j // group
        now = seen_of(slice(j, j + 1), j)
        codes[:, j : j + 1] = nearest(now, scale[:, g : g + 1], zero[:, g : g + 1], bits)
        back = values(codes[:, j], scale[:, g], zero[:, g])
        e[:, j] = (now[:, 0] - back) / u[j, j]
    return codes, scale, zero


def updates(n, k, block):
    per_row = 0
    for j in range(k):
        end = min((j // block + 1) * block, k)
        per_row += end - 1 - j
        per_row += k - end if j + 1 == end else 0
    return n * per_row
