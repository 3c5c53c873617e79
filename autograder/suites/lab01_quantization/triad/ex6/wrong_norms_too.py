"""Norms are rounded as well."""

import copy

from torch import nn

FAILS = ["test_which_parameters_change", "test_new_weights"]


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
        w.data.copy_(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
        bill[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
        done.add(id(w))
    for m in quantized.modules():
        if isinstance(m, nn.LayerNorm):
            new = quantize_weight(m.weight.detach()[None], bits, "tensor", False)  # noqa: F821
            m.weight.data.copy_(new[0])
    return quantized, sum(bill.values())
