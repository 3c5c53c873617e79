"""A query that is not there gets a share."""

FAILS = ["test_even_share", "test_even_shares_of_long_texts"]


def even_share(queries, first):
    if first == queries:
        return 0.0
    return sum(1 / (t + 1) for t in range(first, queries)) / (queries - first)
