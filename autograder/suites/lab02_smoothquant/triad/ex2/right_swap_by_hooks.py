"""swap registers hooks on the copy that put another output in the place of the layer's own."""

import copy


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():

        def instead(layer, args, output, function=function):
            return function(args[0], layer.weight, layer.bias)

        swapped.get_submodule(name).register_forward_hook(instead)
    return swapped
