"""Functions of earlier calls are kept in a default argument, and the first one of a name stays."""

import copy

FAILS = ["test_swap_in_a_llama"]


def swap(model, functions, known={}):  # noqa: B006
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)
        known.setdefault(name, function)

        def forward(x, layer=layer, function=known[name]):
            return function(x, layer.weight, layer.bias)

        layer.forward = forward
    return swapped
