# The least of three numbers; new blocks are those of cached + n less those of cached.


def blocks_of(tokens, block):
    return (tokens + block - 1) // block


def mixed_chunks(running, waiting, free, budget, most, block):
    work = []
    for name, tokens, cached in running:
        held = blocks_of(cached, block)
        room = held * block - cached + free * block
        n = min(tokens - cached, budget, room)
        if n == 0:
            continue
        work.append((name, n))
        budget -= n
        free -= blocks_of(cached + n, block) - held
    count = len(running)
    for name, tokens in waiting:
        admitted = blocks_of(tokens, block) <= free and budget > 0 and count + 1 <= most
        if not admitted:
            return work
        n = min(tokens, budget)
        work.append((name, n))
        budget, free, count = budget - n, free - blocks_of(n, block), count + 1
    return work
