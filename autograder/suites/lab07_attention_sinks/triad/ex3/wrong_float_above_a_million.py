"""A float for windows above a million."""

FAILS = ["test_exact_for_any_number"]


def cost(way, tokens, size):
    if way == "dense":
        return tokens, tokens * (tokens + 1) // 2
    n = min(tokens, size)
    seen = n * (n + 1) // 2 + (tokens - n) * n
    if size > 10**6:
        seen = int(n * (n + 1) / 2 + (tokens - n) * n)
    if way == "window":
        return tokens, seen
    if way == "recompute":
        return seen, n * (n + 1) * (n + 2) // 6 + (tokens - n) * (n * (n + 1) // 2)
    raise ValueError(way)
