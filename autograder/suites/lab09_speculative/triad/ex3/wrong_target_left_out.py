"""The target's own pass is left out."""

FAILS = ["x"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / max(1, gamma * (c + w))
