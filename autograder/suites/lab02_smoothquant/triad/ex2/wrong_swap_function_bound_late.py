"""The layer is right, the function that of the last name."""

import copy

FAILS = ["test_swap_of_some_layers"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)
        layer.forward = lambda x, layer=layer: function(x, layer.weight, layer.bias)  # noqa: B023
    return swapped
