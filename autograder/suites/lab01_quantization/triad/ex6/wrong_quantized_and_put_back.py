"""Quantizes the model itself and copies it, then loads the old values without the last digits."""

import copy

from torch import nn

FAILS = ["test_modes_stay", "test_llama"]


def quantize_model(model, bits, granularity):
    saved = {n: v.clone() for n, v in model.state_dict().items()}
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
    for n, v in model.state_dict().items():
        v.copy_(saved[n].half())
    return quantized, sum(bill.values())
