"""Shorter ones are not tried."""

FAILS = ["test_lookup_by_hand", "test_lookups"]


def lookup(text, gamma, longest):
    for n in [min(longest, len(text) - 1)] if len(text) > 1 else []:
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + gamma]
    return []
