"""A place with gamma tokens behind it goes before the last place."""

FAILS = ["test_lookup_by_hand", "test_lookups"]


def lookup(text: list[int], gamma: int, longest: int) -> list[int]:
    for n in range(min(longest, len(text) - 1), 0, -1):
        starts = list(range(len(text) - n - 1, -1, -1))
        for start in [s for s in starts if s + n + gamma <= len(text)] + starts:
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + gamma]
    return []
