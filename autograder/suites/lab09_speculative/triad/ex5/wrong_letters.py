"""Searches in a string of the numbers: 1 is found in 21."""

FAILS = ["test_lookup_by_hand", "test_lookups"]


def lookup(text: list[int], gamma: int, longest: int) -> list[int]:
    for n in range(min(longest, len(text) - 1), 0, -1):
        head = " ".join(map(str, text[:-1])) + " "
        at = head.rfind(" ".join(map(str, text[-n:])) + " ")
        if at >= 0:
            start = len(head[:at].split())
            if at > 0 and head[at - 1] != " ":
                start -= 1
            return text[start + n : start + n + gamma]
    return []
