"""The function is called by keywords, whatever it calls its arguments."""

import copy

import torch

FAILS = ["test_swap_leaves_the_rest"]


def swap(model, functions):
    class Computed(torch.nn.Module):
        def __init__(self, linear, function):
            super().__init__()
            self.weight, self.bias, self.function = linear.weight, linear.bias, function

        def forward(self, x):
            return self.function(x, weight=self.weight, bias=self.bias)

    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        parent, _, last = name.rpartition(".")
        layer = Computed(swapped.get_submodule(name), function)
        setattr(swapped.get_submodule(parent), last, layer)
    return swapped
