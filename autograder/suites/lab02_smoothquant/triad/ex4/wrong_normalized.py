"""The scales are divided by their mean, as AWQ divides its own."""

FAILS = ["test_lecture_example", "test_law_of_scales"]

_right = smoothing_scales  # noqa: F821 -- the solution of exercise 4


def smoothing_scales(x_max, weights, alpha):
    s = _right(x_max, weights, alpha)
    return s / (s.max() * s.min()).sqrt()
