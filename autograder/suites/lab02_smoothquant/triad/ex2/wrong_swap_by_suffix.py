"""Layers whose names end with the name: "q" exchanges "a.q" too."""

import copy

from torch import nn

FAILS = ["test_swap_of_some_layers", "test_swap_leaves_the_rest"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, layer in list(swapped.named_modules()):
        for wanted, function in functions.items():
            if isinstance(layer, nn.Linear) and name.endswith(wanted):
                layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, layer.bias)
    return swapped
