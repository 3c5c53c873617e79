# Tokens one after the other, as (piece, position) pairs; the yield by takewhile.
from itertools import takewhile


def tokens_of(pieces):
    for i, (name, cached, n) in enumerate(pieces):
        for p in range(cached, cached + n):
            yield i, name, p


def layout(pieces, texts, proposed):
    ids, positions, wanted = [], [], tuple([] for _ in pieces)
    for place, (i, name, p) in enumerate(tokens_of(pieces)):
        text = texts[name]
        ids.append(text[p] if p < len(text) else proposed[name][p - len(text)])
        positions.append(p)
        if p + 1 >= len(text):
            wanted[i].append(place)
    return ids, positions, list(wanted)


def step(pieces, texts, proposed, best):
    places, new, after = iter(best), {}, {}
    for name, cached, n in pieces:
        said = [next(places) for _ in range(n)]
        known = len(texts[name])
        unread = known - cached  # known tokens that this piece had to read
        if n < unread:
            new[name], after[name] = (), cached + n
            continue
        own = said[unread - 1 :]
        pairs = zip(own, proposed.get(name, []), strict=False)
        held = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        held = min(held, n - unread)
        new[name] = tuple(own[: held + 1])
        after[name] = known + len(new[name]) - 1
    return new, after
