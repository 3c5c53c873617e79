"""For each expert the sorted queue of those that ask; the first ones keep their place."""


def capacity(tokens, count, k, factor):
    if min(tokens, count - 1, k - 1) < 0 or math.isnan(factor) or math.isinf(factor) or factor < 0:
        raise ValueError("a number is out of range")
    even = tokens * k / count
    return math.ceil(even * factor)


def admitted(experts, places, order="tokens", real=None):
    if places < 0:
        raise ValueError("places")
    if order not in ("choices", "tokens"):
        raise ValueError("order")
    first = 1 if order == "choices" else 0
    asks = {}
    for t, row in enumerate(experts.tolist()):
        if real is None or bool(real[t]):
            for j, e in enumerate(row):
                asks.setdefault(e, []).append((t, j))
    kept = torch.zeros(tuple(experts.shape), dtype=torch.bool)
    for queue in asks.values():
        for t, j in sorted(queue, key=lambda at: (at[first], at[1 - first]))[:places]:
            kept[t, j] = True
    return kept
