"""Dense reading with size 0 is refused, though it has none."""

FAILS = ["test_costs_against_sums"]


def cost(way, tokens, size):
    if size < 1:
        raise ValueError("size")
    if way == "dense":
        return tokens, tokens * (tokens + 1) // 2
    n = min(tokens, size)
    seen = n * (n + 1) // 2 + (tokens - n) * n
    if way == "window":
        return tokens, seen
    if way == "recompute":
        return seen, n * (n + 1) * (n + 2) // 6 + (tokens - n) * (n * (n + 1) // 2)
    raise ValueError(way)
