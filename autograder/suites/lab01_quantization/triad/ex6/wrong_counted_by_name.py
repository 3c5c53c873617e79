"""Sums over names: a layer used twice is paid for twice."""

from torch import nn

FAILS = ["test_shared_layer"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)
    seen = set()
    for _, layer in quantized.named_modules(remove_duplicate=False):
        if isinstance(layer, nn.Linear) and id(layer) in seen:
            total += weight_bits(layer.weight.shape, bits, granularity, False)  # noqa: F821
        seen.add(id(layer))
    return quantized, total
