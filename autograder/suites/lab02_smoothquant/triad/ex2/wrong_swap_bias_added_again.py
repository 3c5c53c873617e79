"""The bias is given to the function and added to its result besides."""

import copy

FAILS = ["test_swap_of_some_layers"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)

        def forward(x, layer=layer, function=function):
            y = function(x, layer.weight, layer.bias)
            return y if layer.bias is None else y + layer.bias

        layer.forward = forward
    return swapped
