"""The speed-up is rounded to two digits."""

FAILS = ["test_best_lengths"]


def speedup(a, gamma, c, w):
    return round(expected_tokens(a, gamma) / (1 + gamma * (c + w)), 2)
