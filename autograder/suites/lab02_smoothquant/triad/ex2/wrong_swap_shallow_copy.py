"""copy.copy: the copy shares its layers with the model."""

import copy

FAILS = ["test_swap_of_some_layers", "test_swap_in_a_llama"]


def swap(model, functions):
    swapped = copy.copy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)

        def forward(x, layer=layer, function=function):
            return function(x, layer.weight, layer.bias)

        layer.forward = forward
    return swapped
