"""The function gets x as [tokens, K], whatever its shape was."""

import copy

import torch

FAILS = ["test_swap_leaves_the_rest"]


def swap(model, functions):
    class Computed(torch.nn.Module):
        def __init__(self, linear, function):
            super().__init__()
            self.weight, self.bias, self.function = linear.weight, linear.bias, function

        def forward(self, x):
            y = self.function(x.reshape(-1, x.shape[-1]), self.weight, self.bias)
            return y.view(*x.shape[:-1], -1)

    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        parent, _, last = name.rpartition(".")
        layer = Computed(swapped.get_submodule(name), function)
        setattr(swapped.get_submodule(parent), last, layer)
    return swapped
