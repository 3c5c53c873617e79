"""Clamps the argument itself before it quantizes."""

import torch

FAILS = ["test_values_on_the_grid", "test_every_width"]

_right = fake_quantize  # noqa: F821 -- the solution of exercise 5


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    y = _right(x, scale, zero, bits, symmetric)
    with torch.no_grad():
        x.data.clamp_((scale * (qmin - zero)).to(x.dtype), (scale * (qmax - zero)).to(x.dtype))
    return y
