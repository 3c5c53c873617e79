# An index along running, on a copy that loses its last entries.


def preempting(running, waiting, free, budget, most, block):
    copy, back, plan, i = running[:], [], [], 0
    while i < len(copy):
        name, tokens, cached = copy[i]
        if budget == 0:
            break
        if cached % block == 0 and free == 0:
            gone = copy.pop()
            back.append(gone[0])
            free += (gone[2] + block - 1) // block
            continue
        room = (block - cached % block) % block + free * block
        n = min(tokens - cached, budget, room)
        free -= (cached + n + block - 1) // block - (cached + block - 1) // block
        budget -= n
        plan.append((name, n))
        i += 1
    if back:
        return plan, back
    count = len(running)
    for name, tokens in waiting:
        if count == most or budget == 0 or (tokens + block - 1) // block > free:
            break
        n = min(tokens, budget)
        plan.append((name, n))
        count, budget, free = count + 1, budget - n, free - (n + block - 1) // block
    return plan, back


def line_after(running, waiting, put_back):
    head = []
    for name, tokens, _ in running:
        if name in put_back:
            head.append((name, tokens))
    return head + waiting
