# A list of the moments at which machines are free; the link is a pool of one with another line.


def prefill_pool(arrivals, seconds, workers):
    free = [0] * workers
    ends = []
    for at, takes in zip(arrivals, seconds, strict=True):
        machine = min(range(workers), key=lambda m: free[m])
        free[machine] = max(at, free[machine]) + takes
        ends.append(free[machine])
    return ends


def hand_over(ends, sizes, bandwidth):
    order = sorted(range(len(ends)), key=lambda i: (ends[i], i))
    crossed = prefill_pool([ends[i] for i in order], [sizes[i] / bandwidth for i in order], 1)
    ready = [None] * len(ends)
    for i, at in zip(order, crossed, strict=True):
        ready[i] = at
    return ready


def decode_pool(ready, cached, left, most, step):
    line = sorted([(at, i) for i, at in enumerate(ready) if left[i]])
    made = [[] for _ in ready]
    inside, clock = [], 0
    while line or inside:
        if not inside and line[0][0] > clock:
            clock = line[0][0]
        while line and line[0][0] <= clock and len(inside) < most:
            inside.append(line.pop(0)[1])
        rows = [cached[i] + len(made[i]) for i in inside]
        clock = clock + step(rows)
        stay = []
        for i in inside:
            made[i].append(clock)
            if len(made[i]) < left[i]:
                stay.append(i)
        inside = stay
    return made
