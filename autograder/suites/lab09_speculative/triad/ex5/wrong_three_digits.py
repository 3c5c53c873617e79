"""Ids are written with three digits each, and searched in a string."""

FAILS = ["test_lookups"]


def lookup(text, gamma, longest):
    word = "".join(f"{token:03d}" for token in text)
    for n in range(min(longest, len(text) - 1), 0, -1):
        at = word[:-3].rfind(word[-3 * n :])
        while at > 0 and at % 3:
            at = word[: at + 3 * n - 1].rfind(word[-3 * n :])
        if at >= 0:
            return text[at // 3 + n : at // 3 + n + gamma]
    return []
