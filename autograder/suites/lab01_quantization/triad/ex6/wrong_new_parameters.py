"""layer.weight = nn.Parameter(...): two layers that shared a weight no longer do."""

import copy

from torch import nn

FAILS = ["test_shared_layer"]


def quantize_model(model, bits, granularity):
    quantized, total = copy.deepcopy(model), 0
    keep = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    rest = {id(p): 16 * p.numel() for p in quantized.parameters()}
    for name, layer in quantized.named_modules():
        skip = name.split(".")[-1] == "lm_head" or not isinstance(layer, nn.Linear)
        if not skip and id(layer.weight) not in keep:
            w = layer.weight
            rest.pop(id(w), None)
            total += weight_bits(w.shape, bits, granularity, False)  # noqa: F821
            layer.weight = nn.Parameter(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
    return quantized, total + sum(rest.values())
