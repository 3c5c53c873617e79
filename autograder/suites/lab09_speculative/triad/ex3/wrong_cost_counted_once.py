"""One pass of the draft for all proposals."""

FAILS = ["test_speed_by_hand", "test_best_lengths"]


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + c + gamma * w)
