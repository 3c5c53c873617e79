"""A constant added to what norms put out, and taken off again by what reads them."""

import copy
from collections.abc import Mapping

from torch import Tensor, nn

from efflib.models.groups import norm_groups


def add_offsets(model: nn.Module, offsets: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the same function whose norms put out X + offsets[norm] [K].

    Every norm must have a `bias` (None or a parameter), as ours and LayerNorm have; linears get a
    bias where they have none. The function differs by rounding: terms of size |W c| cancel.
    Raises ValueError for a norm without a bias, a router that reads one, and as `norm_groups`.
    """
    model = copy.deepcopy(model)
    for group in norm_groups(model):
        if not hasattr(group.norm, "bias"):
            kind = type(group.norm).__name__
            raise ValueError(f"{group.name}: {kind} has no bias to hold an offset")
        if group.routers:
            raise ValueError(f"{group.name}: {next(iter(group.routers))} has no bias")
        c = offsets[group.name].to(group.norm.weight)
        _add_to_bias(group.norm, c)
        for linear in group.linears.values():
            # W c in float64: a sum of large terms that cancel in use
            moved = linear.weight.detach().double() @ c.double()  # [N]
            _add_to_bias(linear, -moved.to(linear.weight.dtype))
    return model


def _add_to_bias(module: nn.Module, shift: Tensor) -> None:
    bias = shift if module.bias is None else module.bias.detach() + shift
    module.bias = nn.Parameter(bias.clone())
