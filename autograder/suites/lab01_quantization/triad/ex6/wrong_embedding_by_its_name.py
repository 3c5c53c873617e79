"""The embedding is looked for by the name embed_tokens."""

import copy

from torch import nn

FAILS = ["test_copy_is_its_own", "test_tied_output_layer"]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    bill = {id(p): 16 * p.numel() for p in quantized.parameters()}
    names = dict(quantized.named_modules())
    done = {id(names["embed_tokens"].weight)} if "embed_tokens" in names else set()
    for name, layer in quantized.named_modules():
        if not isinstance(layer, nn.Linear) or name.split(".")[-1] == "lm_head":
            continue
        w = layer.weight
        if id(w) in done:
            continue
        w.data.copy_(quantize_weight(w.detach(), bits, granularity, False))  # noqa: F821
        bill[id(w)] = weight_bits(w.shape, bits, granularity, False)  # noqa: F821
        done.add(id(w))
    return quantized, sum(bill.values())
