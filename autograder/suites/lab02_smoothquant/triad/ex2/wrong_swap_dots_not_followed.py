"""setattr on the model itself with the dotted name: the layers inside stay what they are."""

import copy

from torch import nn

FAILS = ["test_swap_of_some_layers", "test_swap_in_a_llama"]


class Dotted(nn.Module):
    def __init__(self, linear, function):
        super().__init__()
        self.linear, self.function = [linear], function

    def forward(self, x):
        return self.function(x, self.linear[0].weight, self.linear[0].bias)


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        swapped.__dict__[name] = Dotted(swapped.get_submodule(name), function)
    return swapped
