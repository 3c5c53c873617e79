"""n is 90 at most."""

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    size = len(text)
    for n in range(min(longest, 90, size - 1), 0, -1):
        tail = text[size - n :]
        for start in range(size - n - 1, -1, -1):
            if text[start : start + n] == tail:
                return text[start + n : start + n + gamma]
    return []
