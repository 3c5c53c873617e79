"""T squared, T L and T L squared."""

FAILS = [
    "test_costs_by_hand",
    "test_large_costs",
    "test_costs_against_sums",
    "test_exact_for_any_number",
]


def cost(way, tokens, size):
    if way == "dense":
        return tokens, tokens * tokens
    if way == "window":
        return tokens, tokens * size
    if way == "recompute":
        return tokens * size, tokens * size * size
    raise ValueError(way)
