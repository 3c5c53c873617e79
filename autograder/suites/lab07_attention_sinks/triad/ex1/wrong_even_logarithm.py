"""The logarithm in place of the sum."""

import math

FAILS = ["test_even_share", "test_even_shares_of_long_texts"]


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    return math.log((queries + 1) / (first + 1)) / (queries - first)
