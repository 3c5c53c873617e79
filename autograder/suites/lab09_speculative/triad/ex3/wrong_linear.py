"""gamma a + 1: as if a wrong guess did not end the round."""

FAILS = ["x"]


def expected_tokens(a, gamma):
    return 1.0 + gamma * a
