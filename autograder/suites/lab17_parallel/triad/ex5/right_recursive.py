"""Start times by recursion through what is needed; live as a set of what is held."""


def gpipe(stage, stages, micro):
    return [(kind, i) for kind in "FB" for i in range(micro)]


def one_f_one_b(stage, stages, micro):
    f, b, order = 0, 0, []
    while b < micro:
        if f < micro and f - b < stages - stage:
            order.append(("F", f))
            f += 1
        else:
            order.append(("B", b))
            b += 1
    return order


def start_times(orders, forward, backward):
    takes = {"F": forward, "B": backward}
    known, open_ = {}, set()
    place = {(s, *p): j for s, order in enumerate(orders) for j, p in enumerate(order)}

    def end(s, kind, i):
        return begin(s, kind, i) + takes[kind]

    def begin(s, kind, i):
        key = (s, kind, i)
        if key in known:
            return known[key]
        if key in open_ or key not in place:
            raise ValueError(f"{kind}{i} of stage {s} never is done")
        open_.add(key)
        needs = [0.0]
        if place[key]:
            needs.append(end(s, *orders[s][place[key] - 1]))
        if kind == "F" and s:
            needs.append(end(s - 1, "F", i))
        if kind == "B":
            last = s == len(orders) - 1
            needs.append(end(s, "F", i) if last else end(s + 1, "B", i))
        known[key] = max(needs)
        return known[key]

    return [[float(begin(s, *piece)) for piece in order] for s, order in enumerate(orders)]


def bubble(stages, micro):
    from fractions import Fraction

    return float(Fraction(stages - 1, micro + stages - 1))


def live(order):
    held, most = set(), 0
    for kind, i in order:
        (held.add if kind == "F" else held.discard)(i)
        most = max(most, len(held))
    return most
