"""Sums, as the help says."""


def acceptance_rate(p, q):
    return sum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True)) * 1.0


def expected_tokens(a, gamma):
    total, least = 0.0, 1.0
    for _ in range(gamma + 1):
        total += least
        least *= a
    return total


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (gamma * c + gamma * w + 1)


def best_gamma(a, c, w, most):
    best = 0
    for gamma in range(1, most + 1):
        if speedup(a, gamma, c, w) > speedup(a, best, c, w):
            best = gamma
    return best
