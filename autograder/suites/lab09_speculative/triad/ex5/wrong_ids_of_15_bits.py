"""Ids are compared by their last 15 bits."""

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    size = len(text)
    full, text = text, [t % 32768 for t in text]
    for n in range(min(longest, size - 1), 0, -1):
        tail = text[size - n :]
        for start in range(size - n - 1, -1, -1):
            if text[start : start + n] == tail:
                return full[start + n : start + n + gamma]
    return []
