"""Quantizes the state dict of the original and loads it into a copy."""

import copy

from torch import nn


def quantize_model(model, bits, granularity):
    embedded = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
    modules = dict(model.named_modules(remove_duplicate=False))
    state, total, counted = model.state_dict(), 0, set()
    for name, p in model.named_parameters(remove_duplicate=False):
        owner, _, leaf = name.rpartition(".")
        chosen = isinstance(modules[owner], nn.Linear) and leaf == "weight"
        chosen = chosen and owner.split(".")[-1] != "lm_head" and p.data_ptr() not in embedded
        if chosen:
            state[name] = quantize_weight(p.detach(), bits, granularity, False)  # noqa: F821
        if id(p) not in counted:
            counted.add(id(p))
            size = weight_bits(p.shape, bits, granularity, False) if chosen else 0  # noqa: F821
            total += size or 16 * p.numel()
    copied = copy.deepcopy(model)
    copied.load_state_dict(state)
    return copied, total
