"""Goes by the name lm_head only: an output layer of another name takes the embedding with it."""

import copy

from torch import nn

FAILS = ["test_which_parameters_change", "test_tied_output_layer"]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    for name, layer in quantized.named_modules():
        if isinstance(layer, nn.Linear) and name.split(".")[-1] != "lm_head":
            w = layer.weight
            total[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
            w.data.copy_(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
    return quantized, sum(total.values())
