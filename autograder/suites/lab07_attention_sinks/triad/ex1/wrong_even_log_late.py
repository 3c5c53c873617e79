"""A logarithm in place of the sum, where the text is long."""

import math

FAILS = ["test_even_shares_of_long_texts"]


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    if first < 100:
        return sum(1 / (t + 1) for t in range(first, queries)) / (queries - first)
    return math.log((queries + 1) / (first + 1)) / (queries - first)
