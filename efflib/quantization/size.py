"""The size of a quantized weight in bits, with everything that is needed to read it back.

    linear:   N K b  +  groups (scale_bits + zero_bits)        zero_bits only if asymmetric
    k-means:  N K b  +  groups 2^b entry_bits

"4 bits" is the first term.  A comparison at equal quality is fair only with the second: groups of
32 with a 16-bit scale and a 4-bit zero point cost 4.625 bits a weight, and a 4-bit codebook for
each 32 weights costs 12.

Conventions differ: GPTQ checkpoints and AWQ store zero points in b bits (the default here), others
a second float (zero_bits=16).  Formats keep scales in 16 bits and so do these sums, although
`linear` holds them in float32.  Codes are counted as packed, b bits each, and without the Huffman
coding that Deep Compression adds.  Buffers that are computed again on loading count nothing.
"""

import math

from torch import nn

from efflib.checks import expect_names, expect_whole, is_named
from efflib.quantization.linear import Granularity, code_range, group_count

SKIP = ("lm_head",)  # what is kept in float unless a caller says otherwise
FLOAT_BITS = 16  # of a parameter that is not quantized, a scale, or a codebook entry


def weight_bits(
    shape: tuple[int, int],
    bits: int,
    granularity: Granularity,
    symmetric: bool,
    scale_bits: int = FLOAT_BITS,
    zero_bits: int | None = None,
) -> int:
    """Total bits of a linearly quantized weight [N, K] = shape: codes, scales and zero points.

    zero_bits: bits of one zero point, `bits` by default; a symmetric grid has none.
    Raises ValueError for bits, a granularity or a shape that `quantize_weight` would not take.
    """
    code_range(bits, symmetric)
    expect_whole(scale_bits=scale_bits, zero_bits=zero_bits or 0)
    metadata = scale_bits
    if not symmetric:
        metadata += bits if zero_bits is None else zero_bits
    return math.prod(shape) * bits + group_count(shape, granularity) * metadata


def codebook_bits(
    shape: tuple[int, int], bits: int, granularity: Granularity, entry_bits: int = FLOAT_BITS
) -> int:
    """Total bits of a k-means quantized weight [N, K] = shape: codes and codebooks."""
    code_range(bits, symmetric=False)
    expect_whole(entry_bits=entry_bits)
    return math.prod(shape) * bits + group_count(shape, granularity) * 2**bits * entry_bits


def bits_per_weight(total_bits: int, shape: tuple[int, ...]) -> float:
    """total_bits divided by the number of weights in shape."""
    if math.prod(shape) == 0:
        raise ValueError(f"shape {tuple(shape)} holds no weight")
    return total_bits / math.prod(shape)


def quantizable_linears(model: nn.Module, skip: tuple[str, ...] = SKIP) -> dict[str, nn.Linear]:
    """{name: nn.Linear} of the layers that are quantized: those that nothing else needs in float.

    Left out: names that contain an entry of skip as whole components ("lm_head", "layers.0",
    "mlp"), and weights that are the same Parameter as one of a module left out, e.g. an output
    layer tied to the embedding.  Raises ValueError for a skip that is one string, and for an entry
    that names no module, except "lm_head", which not every model has.
    """
    expect_names(model, skip=skip, optional=SKIP)
    modules = list(model.named_modules(remove_duplicate=False))  # a shared one under every name
    linears, in_float = {}, set()
    for name, module in modules:
        if isinstance(module, nn.Linear) and not is_named(name, skip):
            linears[name] = module
        else:
            in_float.update(id(parameter) for parameter in module.parameters(recurse=False))
    return {name: layer for name, layer in linears.items() if id(layer.weight) not in in_float}


def model_bits(
    model: nn.Module,
    bits: int | None = None,
    granularity: Granularity = "tensor",
    symmetric: bool = False,
    method: str = "linear",
    skip: tuple[str, ...] = SKIP,
) -> int:
    """Total bits of the model that `quantize_model` with these arguments returns.

    Every Parameter counts once, however often it is used, in FLOAT_BITS unless it is quantized.
    bits=None: nothing is quantized, the size to compare with.  Only shapes are read.
    Raises ValueError for an unknown method, or method "kmeans" with symmetric=True.
    """
    if method not in ("linear", "kmeans") or (method == "kmeans" and symmetric):
        raise ValueError(f'method is "linear", or "kmeans" (not symmetric), got {method!r}')
    total = {id(p): p.numel() * FLOAT_BITS for p in model.parameters()}
    if bits is not None:
        for layer in quantizable_linears(model, skip).values():
            shape = tuple(layer.weight.shape)
            if method == "linear":
                total[id(layer.weight)] = weight_bits(shape, bits, granularity, symmetric)
            else:
                total[id(layer.weight)] = codebook_bits(shape, bits, granularity)
    return sum(total.values())
