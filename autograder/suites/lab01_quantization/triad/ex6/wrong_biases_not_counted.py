"""Adds up weights of layers: biases, norms and everything that is not a layer are free."""

from torch import nn

FAILS = ["test_total_of_a_small_model", "test_total_counts_everything"]

_right = quantize_model  # noqa: F821 -- the solution of exercise 6


def quantize_model(model, bits, granularity):
    quantized, total = _right(model, bits, granularity)
    small = [m.bias for m in quantized.modules() if isinstance(m, nn.Linear | nn.LayerNorm)]
    return quantized, total - sum(16 * b.numel() for b in small if b is not None)
