"""Sums in plain Python, and a search that keeps what is strictly faster."""


def acceptance_rate(p, q):
    return float(sum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True)))


def expected_tokens(a, gamma):
    tokens, reach = 1.0, 1.0
    for _ in range(gamma):
        reach *= a
        tokens += reach
    return tokens


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + gamma * c + gamma * w)


def best_gamma(a, c, w, most):
    best = 0
    for gamma in range(most + 1):
        if speedup(a, gamma, c, w) > speedup(a, best, c, w):
            best = gamma
    return best
