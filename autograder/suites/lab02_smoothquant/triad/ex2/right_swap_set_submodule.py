"""swap with torch's own set_submodule, and a subclass of nn.Linear in the place of the layer."""

import copy

from torch import nn


class FunctionLinear(nn.Linear):
    def forward(self, x):
        return self.function(x, self.weight, self.bias)


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        old = swapped.get_submodule(name)
        new = FunctionLinear(old.in_features, old.out_features, bias=old.bias is not None)
        new.weight, new.bias, new.function = old.weight, old.bias, function
        swapped.set_submodule(name, new)
    return swapped
