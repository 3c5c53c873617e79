"""Query t is said to see t keys."""

FAILS = ["test_even_share", "test_even_shares_of_long_texts"]


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    return sum(1 / max(t, 1) for t in range(first, queries)) / (queries - first)
