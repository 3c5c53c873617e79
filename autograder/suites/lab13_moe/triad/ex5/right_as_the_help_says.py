"""The help and the last hint, line by line."""


def woken(count, k, batch):
    if k < 1 or k > count or batch < 0:
        raise ValueError("out of range")
    return count * (1 - (1 - k / count) ** batch)


def step_bytes(experts, expert_bytes):
    return len(set(experts.flatten().tolist())) * expert_bytes


def sent(experts, home, place, devices, row, once):
    moved = torch.zeros(devices, devices, dtype=torch.int64)
    for t in range(len(experts)):
        targets = place[experts[t]].tolist()
        for device in set(targets) if once else targets:
            if device != home[t]:
                moved[home[t], device] += row
    return moved
