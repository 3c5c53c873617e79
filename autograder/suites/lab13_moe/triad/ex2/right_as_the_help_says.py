"""The help and the last hint, line by line."""


def capacity(tokens, count, k, factor):
    if tokens < 0 or count < 1 or k < 1 or factor < 0 or not math.isfinite(factor):
        raise ValueError("out of range")
    return math.ceil(tokens * k * factor / count)


def admitted(experts, places, order="tokens", real=None):
    if order not in ("tokens", "choices"):
        raise ValueError(order)
    if places < 0:
        raise ValueError(places)
    tokens, k = experts.shape
    kept, taken = torch.zeros(tokens, k, dtype=torch.bool), {}

    def ask(t, j):
        e = int(experts[t, j])
        if (real is None or real[t]) and taken.get(e, 0) < places:
            taken[e] = taken.get(e, 0) + 1
            kept[t, j] = True

    if order == "tokens":
        for t in range(tokens):
            for j in range(k):
                ask(t, j)
    else:
        for j in range(k):
            for t in range(tokens):
                ask(t, j)
    return kept
