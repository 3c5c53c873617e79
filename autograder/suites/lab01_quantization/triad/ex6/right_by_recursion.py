"""Walks down the children, and adds sizes up at the end from the parameters themselves."""

import copy

import torch
from torch import nn


def _linears(module, name=""):
    """(last part of the name, layer) of every nn.Linear at or below a module."""
    if isinstance(module, nn.Linear):
        yield name, module
    for child_name, child in module.named_children():
        yield from _linears(child, child_name)


def quantize_model(model, bits, granularity):
    result = copy.deepcopy(model)
    tables = [m.weight for m in result.modules() if isinstance(m, nn.Embedding)]
    chosen = []
    for name, layer in _linears(result):
        known = any(layer.weight is other for other in (*tables, *chosen))
        if name != "lm_head" and not known:
            chosen.append(layer.weight)
    with torch.no_grad():
        for weight in chosen:
            weight[:] = quantize_weight(weight, bits, granularity, symmetric=False)  # noqa: F821
    total = sum(weight_bits(w.shape, bits, granularity, False) for w in chosen)  # noqa: F821
    others = [p for p in result.parameters() if not any(p is w for w in chosen)]
    return result, total + 16 * sum(map(torch.numel, others))
