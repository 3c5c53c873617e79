"""swap gives the layers of the copy another forward."""

import copy


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name in functions:
        layer = swapped.get_submodule(name)

        def forward(x, layer=layer, function=functions[name]):
            return function(x, layer.weight, layer.bias)

        layer.forward = forward
    return swapped
