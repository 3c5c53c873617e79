"""Of equal ones the largest."""

FAILS = ["test_speed_by_hand", "test_best_lengths"]


def best_gamma(a, c, w, most):
    return max(range(most, -1, -1), key=lambda g: speedup(a, g, c, w))
