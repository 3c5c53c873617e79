"""For each expert the sorted queue of those that ask; the first ones keep their place."""


def capacity(tokens, count, k, factor):
    if min(tokens, count - 1, k - 1) < 0 or math.isnan(factor) or math.isinf(factor) or factor < 0:
        raise ValueError("a number is out of range")
    even = tokens * k / count
    return math.ceil(even * factor)


def admitted(experts, places, order="tokens", real=None):
    if places < 0:
        raise ValueError("places")
    if order == "choices":
        key = lambda at: (at[1], at[0])
    elif order == "tokens":
        key = lambda at: (at[0], at[1])
    else:
        raise ValueError("order")
    asks = {}
    for t, row in enumerate(experts.tolist()):
        if real is None or bool(real[t]):
            for j, e in enumerate(row):
                asks.setdefault(e, []).append((t, j))
    kept = torch.zeros(tuple(experts.shape), dtype=torch.bool)
    for queue in asks.values():
        for t, j in sorted(queue, key=key)[:places]:
            kept[t, j] = True
    return kept
