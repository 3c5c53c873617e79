"""The model that came in is put into train mode."""

import copy

from torch import nn

FAILS = ["test_modes_stay", "test_total_counts_everything"]


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
    model.train()
    return quantized, sum(bill.values())
