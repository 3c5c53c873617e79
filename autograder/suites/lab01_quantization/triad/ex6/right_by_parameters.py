"""Works on parameters: which names belong to which, and a set of those that stay."""

import copy

import torch
from torch import nn


def quantize_model(model, bits, granularity):
    clone = copy.deepcopy(model)
    linears, keep = {}, set()
    for path, module in clone.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Linear) and path.rpartition(".")[2] != "lm_head":
            linears[id(module.weight)] = module.weight
        else:
            keep |= {id(p) for p in module.parameters(recurse=False)}
    total = 0
    for p in clone.parameters():
        if id(p) in linears and id(p) not in keep:
            total += weight_bits(tuple(p.shape), bits, granularity, False)  # noqa: F821
            p.data = quantize_weight(p.detach(), bits, granularity, False)  # noqa: F821
        else:
            total += 16 * p.numel()
    with torch.no_grad():
        return clone, int(total)
