# Turns by recursion over who is left; blocks counted from the tables that would result.


def turns(entries, free, budget, block):
    if not entries or budget == 0:
        return [], [], free, budget
    (name, tokens, cached), rest = entries[0], list(entries[1:])
    back = []
    while free == 0 and cached % block == 0:
        if not rest:
            return [], [*back, name], free + -(-cached // block), budget
        last = rest.pop()
        back.append(last[0])
        free += -(-last[2] // block)
    n = min(tokens - cached, budget, -cached % block + free * block)
    free -= -(-(cached + n) // block) - -(-cached // block)
    work, more, free, budget = turns(rest, free, budget - n, block)
    return [(name, n), *work], back + more, free, budget


def preempting(running, waiting, free, budget, most, block):
    work, back, spare, left = turns(running, free, budget, block)
    if back:
        return [work, tuple(back)]
    return [work + mixed_chunks([], waiting, spare, left, most - len(running), block), []]


def line_after(running, waiting, put_back):
    place = {name: i for i, (name, _, _) in enumerate(running)}
    again = sorted(put_back, key=place.get)
    return [*((name, running[place[name]][1]) for name in again), *waiting]
