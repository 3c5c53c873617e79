"""Every layer gets the function, the weight and the bias of the last name of the loop."""

import copy

FAILS = ["test_swap_of_some_layers", "test_swap_in_a_llama"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)
        layer.forward = lambda x: function(x, layer.weight, layer.bias)  # noqa: B023
    return swapped
