"""The function gets no bias, so layers that have one lose it."""

import copy

FAILS = ["test_swap_of_some_layers"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)
        layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, None)
    return swapped
