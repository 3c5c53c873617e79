"""Any 2-D weight: the embedding is quantized like a linear layer."""

import copy

FAILS = ["test_which_parameters_change", "test_tied_output_layer"]


def quantize_model(model, bits, granularity):
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    for name, p in quantized.named_parameters():
        if p.ndim == 2 and "lm_head.weight" not in name:
            total[id(p)] = weight_bits(p.shape, bits, granularity, False)  # noqa: F821
            p.data.copy_(quantize_weight(p.detach(), bits, granularity, False))  # noqa: F821
    return quantized, sum(total.values())
