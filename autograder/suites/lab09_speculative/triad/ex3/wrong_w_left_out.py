"""What checking costs is left out."""

FAILS = ["x"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + gamma * c)
