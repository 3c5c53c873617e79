"""By logarithms, exact also for small chances; traffic device by device."""


def woken(count, k, batch):
    if batch < 0 or k <= 0 or k > count:
        raise ValueError("out of range")
    if batch == 0:
        return 0.0
    if k == count:
        return float(count)
    return -count * math.expm1(batch * math.log1p(-k / count))


def step_bytes(experts, expert_bytes):
    seen = []
    for row in experts.tolist():
        for e in row:
            if e not in seen:
                seen.append(e)
    return expert_bytes * len(seen)


def sent(experts, home, place, devices, row, once):
    to = place[experts]
    moved = torch.zeros((devices, devices), dtype=torch.long)
    for p in range(devices):
        for q in range(devices):
            if p == q:
                continue
            wanted = (to == q) & (home == p)[:, None]
            moved[p, q] = row * int(wanted.any(1).sum() if once else wanted.sum())
    return moved
