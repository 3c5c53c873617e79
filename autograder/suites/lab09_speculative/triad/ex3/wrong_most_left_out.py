"""range(most)."""

FAILS = ["test_speed_by_hand", "test_best_lengths"]


def best_gamma(a, c, w, most):
    return max(range(most), key=lambda g: speedup(a, g, c, w)) if most else 0
