"""Compares the whole dotted name with lm_head: a head inside another module is rounded."""

import copy

from torch import nn

FAILS = [
    "test_which_parameters_change",
    "test_total_of_a_small_model",
    "test_total_counts_everything",
]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    done = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    for name, layer in quantized.named_modules():
        if isinstance(layer, nn.Linear) and name != "lm_head" and id(layer.weight) not in done:
            w = layer.weight
            total[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
            w.data.copy_(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
            done.add(id(w))
    return quantized, sum(total.values())
