"""The nearest level by distance: a tie goes to the lower level, not to the even one."""

import torch

FAILS = ["test_ties_go_to_even", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    steps = torch.arange(qmin, qmax + 1, dtype=torch.float64) - zero.double()[..., None]
    places = (x.double() / scale.double()).clamp(-1e6, 1e6)
    nearest = (places[..., None] - steps).abs().argmin(dim=-1) + qmin
    return nearest.to(torch.int8 if symmetric else torch.uint8)
