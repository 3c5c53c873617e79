# Turns from a deque, whose end is put back; blocks counted from the tables that would result.
from collections import deque


def turns(entries, free, budget, block):
    line, work, back = deque(entries), [], []
    while line and budget:
        name, tokens, cached = line.popleft()
        while free == 0 and cached % block == 0:
            last = line.pop() if line else (name, tokens, cached)
            back.append(last[0])
            free += -(-last[2] // block)
            if last[0] == name:
                return work, back, free, budget
        n = min(tokens - cached, budget, -cached % block + free * block)
        free -= -(-(cached + n) // block) - -(-cached // block)
        work.append((name, n))
        budget -= n
    return work, back, free, budget


def preempting(running, waiting, free, budget, most, block):
    work, back, spare, left = turns(running, free, budget, block)
    if back:
        return [work, tuple(back)]
    return [work + mixed_chunks([], waiting, spare, left, most - len(running), block), []]


def line_after(running, waiting, put_back):
    place = {name: i for i, (name, _, _) in enumerate(running)}
    again = sorted(put_back, key=place.get)
    return [*((name, running[place[name]][1]) for name in again), *waiting]
