"""What checking costs is left out."""

FAILS = ["test_speed_by_hand", "test_best_lengths"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + gamma * c)
