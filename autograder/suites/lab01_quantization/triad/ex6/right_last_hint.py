"""The hints, step by step."""

import copy

import torch
from torch import nn


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    bill = {id(p): 16 * p.numel() for p in quantized.parameters()}
    done = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    for name, layer in quantized.named_modules():
        if not isinstance(layer, nn.Linear) or name.split(".")[-1] == "lm_head":
            continue
        w = layer.weight
        if id(w) in done:
            continue
        with torch.no_grad():
            w.copy_(quantize_weight(w, bits, granularity, symmetric=False))  # noqa: F821
        bill[id(w)] = weight_bits(w.shape, bits, granularity, symmetric=False)  # noqa: F821
        done.add(id(w))
    return quantized, sum(bill.values())
