# Position p of a piece stands at (tokens before) + p - cached; agreement counted one by one.


def layout(pieces, texts, proposed):
    ids, positions, wanted, before = [], [], [], 0
    for name, cached, n in pieces:
        text, guesses = texts[name], proposed.get(name, [])
        both = list(text) + list(guesses)
        ids.extend(both[cached : cached + n])
        positions.extend(list(range(cached, cached + n)))
        places = []
        for p in range(max(cached, len(text) - 1), cached + n):
            places.append(before + p - cached)
        wanted.append(places)
        before += n
    return ids, positions, wanted


def step(pieces, texts, proposed, best):
    new, cached_after = {}, {}
    rows = layout(pieces, texts, proposed)[2]
    for i in range(len(pieces)):
        name, cached, n = pieces[i]
        own = [best[place] for place in rows[i]]
        if not own:
            new[name], cached_after[name] = [], cached + n
            continue
        count = 0
        for said, guess in zip(own[:-1], proposed.get(name, []), strict=False):
            if said != guess:
                break
            count += 1
        new[name] = own[: count + 1]
        cached_after[name] = len(texts[name]) + count
    return new, cached_after
