"""A token at a time, by squaring; traffic by a scatter."""


def woken(count, k, batch):
    if not (1 <= k <= count and batch >= 0):
        raise ValueError(f"{k} of {count}, {batch}")
    asleep, factor = 1.0, 1 - k / count
    while batch:
        if batch % 2:
            asleep *= factor
        factor *= factor
        batch //= 2
    return count - count * asleep


def step_bytes(experts, expert_bytes):
    return int(torch.unique(experts).numel()) * expert_bytes


def sent(experts, home, place, devices, row, once):
    needs = F.one_hot(place[experts], devices).sum(1) if len(experts) else None
    moved = torch.zeros(devices, devices, dtype=torch.int64)
    if needs is None:
        return moved
    if once:
        needs = needs.clamp(max=1)
    moved = F.one_hot(home, devices).T @ needs * row
    moved.fill_diagonal_(0)
    return moved
