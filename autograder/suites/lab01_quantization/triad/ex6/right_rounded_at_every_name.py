"""A weight that two layers share goes through its grids twice: the second time changes nothing."""

import copy

import torch
from torch import nn


def quantize_model(model, bits, granularity):
    copied = copy.deepcopy(model)
    tied = {id(m.weight) for m in copied.modules() if isinstance(m, nn.Embedding)}
    bill = {id(p): 16 * p.numel() for p in copied.parameters()}
    for name, layer in copied.named_modules():
        if not isinstance(layer, nn.Linear) or name.split(".")[-1] == "lm_head":
            continue
        w = layer.weight
        if id(w) in tied:
            continue
        with torch.no_grad():
            w.copy_(quantize_weight(w, bits, granularity, symmetric=False))  # noqa: F821
        bill[id(w)] = weight_bits(tuple(w.shape), bits, granularity, False)  # noqa: F821
    return copied, sum(bill.values())
