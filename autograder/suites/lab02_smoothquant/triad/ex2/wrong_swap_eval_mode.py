"""The copy is put into eval mode."""

import copy

from torch import nn

FAILS = ["test_swap_leaves_the_rest"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, layer in list(swapped.named_modules()):
        for wanted, function in functions.items():
            if isinstance(layer, nn.Linear) and name == wanted:
                layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, layer.bias)
    swapped.eval()
    return swapped
