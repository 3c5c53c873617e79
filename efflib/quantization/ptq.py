"""Post-training quantization of a whole model, weights only, by rounding to nearest.

    W of every nn.Linear  ->  dequantize(quantize(W))

No data and no training: each weight goes to the nearest level of its group's grid or codebook.
The quantization is simulated.  The new model computes in its old dtype with weights that take only
the values the codes stand for, so its outputs show the error, and the bits returned are those of
the packed format; it is neither smaller in memory nor faster.  Speed needs kernels that read codes.

Kept in float: embeddings, norms and biases (few parameters, or looked up rather than multiplied),
and by default the output layer `lm_head`, as GPTQ, AWQ and llm-compressor do: its error goes to the
logits directly.  An output layer that shares its weight with the embedding stays as it is.
"""

import copy

import torch
from torch import Tensor, nn

from efflib.quantization.kmeans import dequantize_kmeans_weight, kmeans_quantize_weight
from efflib.quantization.linear import Granularity, dequantize_weight, quantize_weight
from efflib.quantization.size import SKIP, model_bits, quantizable_linears


def _round_trip(
    w: Tensor, bits: int, granularity: Granularity, symmetric: bool, method: str
) -> Tensor:
    """The float32 values [N, K] that w [N, K] has after quantization."""
    if method == "kmeans":
        return dequantize_kmeans_weight(kmeans_quantize_weight(w, bits, granularity))
    return dequantize_weight(quantize_weight(w, bits, granularity, symmetric))


def quantize_model(
    model: nn.Module,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    method: str = "linear",
    skip: tuple[str, ...] = SKIP,
) -> tuple[nn.Module, int]:
    """(copy of model with quantized nn.Linear weights, its total size in bits).

    granularity: "tensor", "channel" or the group size; method: "linear" or "kmeans"; skip: names
    or parts of names of layers to leave alone, see `quantizable_linears`.  Weights keep their
    dtype (in 16 bits the levels are rounded to it).  The model given is not changed, and Parameters
    that are shared in it are shared in the copy.  The size is that of `model_bits`.
    Raises ValueError if there is nothing to quantize or an argument does not fit.
    """
    total = model_bits(model, bits, granularity, symmetric, method, skip)
    quantized = copy.deepcopy(model)
    layers = quantizable_linears(quantized, skip)
    if not layers:
        raise ValueError(f"no nn.Linear to quantize in {type(model).__name__} with skip={skip}")
    weights = {id(layer.weight): layer.weight for layer in layers.values()}  # shared ones once
    with torch.no_grad():
        for weight in weights.values():  # [N, K]
            weight.copy_(_round_trip(weight, bits, granularity, symmetric, method))
    return quantized, total
