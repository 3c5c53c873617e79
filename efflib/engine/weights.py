"""The same model with its linears stored in 4 bits, behind the same interface: x -> x W^T + b.

    as_is    as it comes
    w4a16    4-bit codes with a scale for every 32 inputs, packed in words (`quantization.packing`)

lm_head stays as it is: it is the token table, too.  Here w4a16 decodes its weights in every pass,
once for all requests, which costs time without a kernel; what is gained is memory, and on a GPU
the bytes that a pass reads.  Codes are rounded to nearest; codes from AWQ or GPTQ go the same way,
through `packing.w4a16`.

Not here: int8 activations.  Their rounding turns a difference of the last bit, which a batch has,
into one of a whole step now and then, so that outputs would not stay equal token by token.
"""

from torch import nn

from efflib.models.llama import Llama
from efflib.quantization.linear import quantize_weight
from efflib.quantization.packing import stored_bytes, w4a16
from efflib.quantization.size import quantizable_linears

BITS, GROUP = 4, 32
KINDS = ("as_is", "w4a16")


def with_weights(model: Llama, kind: str) -> Llama:
    """The model itself, or a copy with its layers' linears as KINDS says.

    Raises ValueError for another kind, and where there is no linear that has no codes yet.
    """
    if kind not in KINDS:
        raise ValueError(f"weights are one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "as_is":
        return model
    linears = quantizable_linears(model)
    if not linears:
        raise ValueError("there is no linear to quantize: is the model quantized already?")
    codes = {name: quantize_weight(m.weight, BITS, GROUP) for name, m in linears.items()}
    return w4a16(model, codes)


def weight_bytes(model: nn.Module) -> int:
    """Bytes that a pass reads: all weights; of the token table only where lm_head is the same."""
    total, table = stored_bytes(model), model.model.embed_tokens.weight
    tied = model.lm_head.weight is table
    return total if tied else total - table.numel() * table.element_size()
