"""One pass of the draft for all proposals."""

FAILS = ["x"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + c + gamma * w)
