"""The target's own pass is left out."""

FAILS = ["test_speed_by_hand", "test_best_lengths"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / max(1, gamma * (c + w))
