"""swap goes down the modules and replaces children where it meets them."""

import copy

from torch import nn


class Replaced(nn.Module):
    def __init__(self, inner, function):
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x):
        return self.function(x, self.inner.weight, self.inner.bias)


def replace_children(module, prefix, functions):
    for child_name, child in module.named_children():
        path = f"{prefix}{child_name}"
        if path in functions:
            setattr(module, child_name, Replaced(child, functions[path]))
        else:
            replace_children(child, f"{path}.", functions)


def swap(model, functions):
    swapped = copy.deepcopy(model)
    replace_children(swapped, "", functions)
    return swapped
