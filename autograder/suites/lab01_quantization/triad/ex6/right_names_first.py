"""Decides on the original by names, then sets the values in the copy by the same names."""

import copy

from torch import nn


def quantize_model(model, bits, granularity):
    embedded = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    chosen = {}
    for name, layer in model.named_modules():
        named_head = name == "lm_head" or name.endswith(".lm_head")
        if isinstance(layer, nn.Linear) and not named_head and layer.weight not in embedded:
            chosen.setdefault(layer.weight, f"{name}.weight" if name else "weight")
    twin = copy.deepcopy(model)
    total = 0
    for p in model.parameters():
        if p in chosen:
            new = quantize_weight(p.detach().clone(), bits, granularity, False)  # noqa: F821
            twin.get_parameter(chosen[p]).data = new
            total += weight_bits(tuple(p.shape), bits, granularity, False)  # noqa: F821
        else:
            total += p.numel() * 16
    return twin, total
