"""The copy computes with the weights of the model that came in."""

import copy

FAILS = ["test_swap_in_a_llama"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        old, new = model.get_submodule(name), swapped.get_submodule(name)
        new.weight, new.bias = old.weight, old.bias
        new.forward = lambda x, layer=old, f=function: f(x, layer.weight, layer.bias)
    return swapped
