"""The help and the last hint, line by line."""


def gpipe(stage, stages, micro):
    order = []
    for kind in ("F", "B"):
        for i in range(micro):
            order.append((kind, i))
    return order


def one_f_one_b(stage, stages, micro):
    ahead = min(stages - stage, micro)
    order = [("F", i) for i in range(ahead)]
    following = ahead
    for i in range(micro):
        order.append(("B", i))
        if following < micro:
            order.append(("F", following))
            following += 1
    return order


def start_times(orders, forward, backward):
    ends = {}
    starts = [[] for _ in orders]
    free = [0.0 for _ in orders]
    while sum(map(len, starts)) < sum(map(len, orders)):
        moved = False
        for s in range(len(orders)):
            while len(starts[s]) < len(orders[s]):
                kind, i = orders[s][len(starts[s])]
                if kind == "F":
                    ready = ends.get((s - 1, "F", i)) if s > 0 else 0.0
                elif s == len(orders) - 1:
                    ready = ends.get((s, "F", i))
                else:
                    ready = ends.get((s + 1, "B", i))
                if ready is None:
                    break
                begin = max(ready, free[s])
                starts[s].append(begin)
                free[s] = begin + (forward if kind == "F" else backward)
                ends[(s, kind, i)] = free[s]
                moved = True
        if not moved:
            raise ValueError("somebody waits for ever")
    return starts


def bubble(stages, micro):
    whole = micro + stages - 1
    return 1 - micro / whole


def live(order):
    values = [0]
    for kind, _ in order:
        values.append(values[-1] + (1 if kind == "F" else -1))
    return max(values)
