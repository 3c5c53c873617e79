"""NF4 in the file that bitsandbytes and transformers open: the bytes of `nf4`, and their scales.

    weight                                [n / 2, 1] uint8, the even element in the high half
    weight.absmax                         of blocks: 8-bit codes, or float32 without `double`
    weight.quant_map                      the 16 levels
    weight.nested_absmax, .nested_quant_map       scales of scales, and the 256 levels of codes
    weight.quant_state.bitsandbytes__nf4  the rest, as JSON in bytes: shape, block sizes, the mean

Layout: bitsandbytes 0.50 (QuantState.as_dict).  Its code for CPUs reads rows in whole blocks: there
K has to be a multiple of 64, as in all models of some size.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib.codebooks import dynamic_codebook
from efflib.models.written import write_checkpoint
from efflib.quantization.nf4 import BLOCK, SCALE_BLOCK, Scales, nf4_codebook, quantize_nf4
from efflib.quantization.size import SKIP, quantizable_linears


def nf4_parts(w: Tensor, double: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """{name behind that of the linear: tensor} of a weight [N, K]."""
    q = quantize_nf4(w, double)
    state = {
        "quant_type": "nf4",
        "blocksize": BLOCK,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(q.shape),
    }
    parts = {"weight": q.packed[:, None], "weight.quant_map": nf4_codebook().clone()}
    if isinstance(q.scales, Scales):
        parts["weight.absmax"] = q.scales.codes
        parts["weight.nested_absmax"] = q.scales.second
        parts["weight.nested_quant_map"] = dynamic_codebook().clone()
        state |= {
            "nested_blocksize": SCALE_BLOCK,
            "nested_dtype": "float32",
            "nested_offset": q.scales.mean.item(),
        }
    else:
        parts["weight.absmax"] = q.scales
    text = json.dumps(state).encode()
    parts["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(text), dtype=torch.uint8)
    return parts


def export_nf4(
    model: nn.Module,
    folder: str | Path,
    double: bool = True,
    dtype: torch.dtype = torch.float16,
    skip: tuple[str, ...] = SKIP,
) -> None:
    """Write the model with the linears of `quantizable_linears` in NF4, the rest in `dtype`.

    dtype: also that in which the layers will compute.
    """
    linears = quantizable_linears(model, skip)
    tensors = {
        f"{name}.{part}": tensor
        for name, linear in linears.items()
        for part, tensor in nf4_parts(linear.weight, double, dtype).items()
    }
    config = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": double,
        "bnb_4bit_compute_dtype": str(dtype).removeprefix("torch."),
        "bnb_4bit_quant_storage": "uint8",
        "llm_int8_skip_modules": list(skip),
    }
    write_checkpoint(model, folder, tensors, list(linears), config, dtype)
