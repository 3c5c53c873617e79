"""The search is one of bytes, and ids are larger."""

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    data = bytes(text)
    for n in range(min(longest, len(text) - 1), 0, -1):
        at = data[:-1].rfind(data[-n:])
        if at >= 0:
            return text[at + n : at + n + gamma]
    return []
