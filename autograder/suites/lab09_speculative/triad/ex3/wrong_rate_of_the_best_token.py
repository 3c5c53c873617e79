"""The rate of the draft's favourite only."""

FAILS = ["test_rate", "test_rates"]


def acceptance_rate(p, q):
    x = int(q.argmax())
    return min(1.0, float(p[x] / q[x]))
