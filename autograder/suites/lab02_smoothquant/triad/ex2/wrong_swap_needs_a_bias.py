"""A layer without a bias gets one of zeros."""

import copy

import torch

FAILS = ["test_swap_of_some_layers"]


def swap(model, functions):
    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        layer = swapped.get_submodule(name)

        def forward(x, layer=layer, function=function):
            bias = layer.bias if layer.bias is not None else torch.zeros(len(layer.weight))
            return function(x, layer.weight, bias)

        layer.forward = forward
    return swapped
