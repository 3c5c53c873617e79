"""The hints, step by step."""

import copy

import torch
from torch import nn


def int8_codes(x, x_max):
    scale = x_max.float() / 127
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return torch.round(x.float() / scale).clamp(-127, 127).to(torch.int8), scale


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations == "token":
        x_max = x.abs().amax(-1, keepdim=True)
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static":
        raise ValueError(activations)
    elif x_max is None:
        raise ValueError("x_max")
    (q_x, s_x), (q_w, s_w) = int8_codes(x, x_max), int8_codes(w, w.abs().amax())
    y = q_x.float() @ q_w.float().T * (s_x * s_w)
    return y + bias if bias is not None else y


class Small(nn.Module):
    def __init__(self, layer, function):
        super().__init__()
        self.weight, self.bias, self.function = layer.weight, layer.bias, function

    def forward(self, x):
        return self.function(x, self.weight, self.bias)


def swap(model, functions):
    copied = copy.deepcopy(model)
    for name in functions:
        parent, _, last = name.rpartition(".")
        module = Small(copied.get_submodule(name), functions[name])
        setattr(copied.get_submodule(parent), last, module)
    return copied
