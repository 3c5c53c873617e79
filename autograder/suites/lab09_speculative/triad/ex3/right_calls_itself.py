"""One token, and with probability a those of a round with one proposal less."""


def expected_tokens(a, gamma):
    return 1.0 if gamma == 0 else 1.0 + a * expected_tokens(a, gamma - 1)
