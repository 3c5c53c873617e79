"""Flattens the tokens by view, which transposed inputs refuse."""

FAILS = ["test_every_kind_against_integers"]

_right = w8a8_linear  # noqa: F821 -- the solution of exercise 2


def w8a8_linear(x, w, bias, activations, x_max=None):
    y = _right(x.view(-1, x.shape[-1]), w, bias, activations, x_max)
    return y.view(*x.shape[:-1], -1)
