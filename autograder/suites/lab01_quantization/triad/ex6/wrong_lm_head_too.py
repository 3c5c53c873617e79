"""Every nn.Linear, the output layer included."""

import copy

from torch import nn

FAILS = ["test_which_parameters_change", "test_total_of_a_small_model"]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    fixed = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    for layer in quantized.modules():
        if isinstance(layer, nn.Linear) and id(layer.weight) not in fixed:
            w = layer.weight
            total[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
            w.data.copy_(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
    return quantized, sum(total.values())
