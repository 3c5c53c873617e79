"""The closed formula, with a = 1 apart."""


def acceptance_rate(p, q):
    return float(1 - (p - q).abs().sum() / 2)


def expected_tokens(a, gamma):
    if a > 0.99:
        return float(sum(a**i for i in range(gamma + 1)))
    return (1 - a ** (gamma + 1)) / (1 - a)


def speedup(a, gamma, c, w):
    return expected_tokens(a, gamma) / (1 + gamma * (c + w))


def best_gamma(a, c, w, most):
    speeds = [speedup(a, gamma, c, w) for gamma in range(most + 1)]
    return speeds.index(max(speeds))
