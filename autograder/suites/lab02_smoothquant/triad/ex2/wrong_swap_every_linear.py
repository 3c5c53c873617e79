"""Layers that functions does not name get the first function."""

import copy

from torch import nn

FAILS = ["test_swap_of_some_layers"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    default = next(iter(functions.values()), None)
    for name, layer in swapped.named_modules():
        if isinstance(layer, nn.Linear) and default is not None:
            function = functions.get(name, default)
            layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, layer.bias)
    return swapped
