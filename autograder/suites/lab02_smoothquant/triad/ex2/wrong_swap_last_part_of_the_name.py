"""Layers are found by the last part of their names: q_proj of one block stands for all."""

import copy

from torch import nn

FAILS = ["test_swap_in_a_llama"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        last = name.rpartition(".")[2]
        for other, layer in swapped.named_modules():
            if isinstance(layer, nn.Linear) and other.rpartition(".")[2] == last:
                layer.forward = lambda x, layer=layer, f=function: f(x, layer.weight, layer.bias)
    return swapped
