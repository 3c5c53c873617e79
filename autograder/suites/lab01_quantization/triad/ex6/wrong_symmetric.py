"""A symmetric grid: at 2 bits only three levels are left."""

import copy

from torch import nn

FAILS = ["test_new_weights"]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    fixed = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    for name, layer in quantized.named_modules():
        w = getattr(layer, "weight", None)
        if isinstance(layer, nn.Linear) and id(w) not in fixed and not name.endswith("lm_head"):
            total[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
            w.data.copy_(quantize_weight(w.detach(), bits, granularity, True))  # noqa: F821
    return quantized, sum(total.values())
