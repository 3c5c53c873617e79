"""The swapped model is kept for the functions: another model with them gets that of the first."""

import copy

FAILS = ["test_swap_in_a_llama"]

KEPT = {}


def swap(model, functions):
    key = tuple(id(function) for function in functions.values())
    if key and key in KEPT:
        return KEPT[key][0]
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)
        layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, layer.bias)
    KEPT[key] = swapped, functions  # functions are kept alive, so that no id comes again
    return swapped
