"""Values and mask are kept by the identity of x: training never sees that x has changed."""

import torch

FAILS = ["test_two_calls_before_backward", "test_training_reaches_the_target"]


_right = fake_quantize  # noqa: F821 -- the solution of exercise 5
_kept = {}


def fake_quantize(x, scale, zero, bits, symmetric):
    if id(x) not in _kept:
        value = _right(x, scale, zero, bits, symmetric)
        straight = torch.ones_like(x, requires_grad=True)
        y = _right(x.detach() * straight, scale, zero, bits, symmetric)
        (slope,) = torch.autograd.grad(y.sum(), [straight])
        _kept[id(x)] = x, value.detach(), (slope != 0) | (x.detach() == 0)
    _, value, inside = _kept[id(x)]
    return value + torch.where(inside, x.float() - x.detach().float(), 0.0)
