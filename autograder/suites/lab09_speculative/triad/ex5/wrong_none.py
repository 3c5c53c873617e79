"""None where nothing is found."""

FAILS = ["test_lookup_by_hand", "test_lookups"]


def lookup(text, gamma, longest):
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + gamma]
    return None
