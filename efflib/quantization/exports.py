"""Quantized models in the files that other libraries open: a folder with config.json and weights.

    format               codes of W [N, K]                        scales     zero points
    compressed-tensors   weight_packed [N, K / 8], along K        [N, G]     [N / 8, G], along N
    gptq                 qweight [K / 8, N], along K              [G, N]     [G, N / 8], along N
    awq                  qweight [K, N / 8], along N, in AWQ's    [G, N]     [G, N / 8], likewise
                         order of `packing`
    bitsandbytes NF4     weight [N K / 2, 1], two a byte          absmax, in 8 bits with their own

Who reads them: compressed-tensors and bitsandbytes by transformers, on a CPU too; gptq and awq by
transformers with gptqmodel, and by vLLM.  Codes are stored as they are, scales in the dtype that is
asked for: float16 rounds them by 2^-11, float32 keeps what the codes stand for.

Where formats differ
- Signs.  compressed-tensors speaks of signed codes and packs them with 2^(b-1) added; the others
  have codes from 0 on, so symmetric codes get 2^(b-1) and that as their zero point.
- GPTQ stores zero - 1 and adds the 1 when it reads, which cannot hold 0: there `checkpoint_format`
  says "gptq_v2", which stores the zero point itself.
- g_idx, the group of each column, is written where columns were taken out of order (act_order with
  grids="fresh"), for GPTQ: AWQ has no place for it, compressed-tensors none any more.
- 2:4.  compressed-tensors 0.20 has no format left that leaves out zeros (sparse-24-bitmask was
  one): a pruned model is written with them, by `save_pretrained`.
Layouts: compressed-tensors 0.20, AutoAWQ 0.2.9 "GEMM", bitsandbytes 0.50; of GPTQ that which
llama.cpp's converter reads (convert_hf_to_gguf.py, dequant_gptq).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from efflib.checks import expect_keys
from efflib.models.written import write_checkpoint
from efflib.quantization.gptq import GPTQWeight
from efflib.quantization.linear import QuantizedWeight
from efflib.quantization.packing import pack, pack_awq
from efflib.quantization.size import quantizable_linears

Format = Literal["compressed-tensors", "gptq", "awq"]
Weights = Mapping[str, QuantizedWeight | GPTQWeight]


class Unsigned(NamedTuple):
    """Codes from 0 on, whatever they were: w = scale (codes - zero)."""

    codes: Tensor  # [N, K] uint8
    scale: Tensor  # [N, G]
    zero: Tensor  # [N, G] int32
    g_idx: Tensor | None  # [K], where it is not k // group size


def unsigned(w: QuantizedWeight | GPTQWeight) -> Unsigned:
    """The codes as formats store them.  Raises ValueError for a grid of the whole tensor."""
    if w.granularity == "tensor":
        raise ValueError("no format has one grid for a whole tensor: use channels or groups")
    shift = 2 ** (w.bits - 1) if w.symmetric else 0
    codes = (w.codes.to(torch.int32) + shift).to(torch.uint8)
    index = w.g_idx if isinstance(w, GPTQWeight) and w.stored_index else None
    return Unsigned(codes, w.scale, w.zero + shift, index)


def export(
    model: nn.Module,
    weights: Weights,
    folder: str | Path,
    form: Format = "compressed-tensors",
    dtype: torch.dtype = torch.float16,
) -> None:
    """Write the model with codes for the linears that weights {name: codes} names.

    model: whose other parameters are written, in `dtype`; that of `awq_model.fold` for AWQ.
    Raises ValueError for codes that the format cannot hold, or that are not all of one kind.
    """
    kind = _kind(model, weights, form)
    parts = {"compressed-tensors": _compressed_tensors, "gptq": _gptq, "awq": _awq}[form]
    version = "gptq"
    if form == "gptq" and any((unsigned(w).zero == 0).any() for w in weights.values()):
        version = "gptq_v2"
    tensors = {
        f"{name}.{part}": tensor
        for name, w in weights.items()
        for part, tensor in parts(unsigned(w), kind, dtype, version == "gptq").items()
    }
    left = sorted(
        n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n not in weights
    )
    config = _config(form, kind, left, version)
    write_checkpoint(model, folder, tensors, list(weights), config, dtype)


class _Kind(NamedTuple):
    bits: int
    group: int  # -1: a row
    symmetric: bool
    stored_index: bool


def _kind(model: nn.Module, weights: Weights, form: str) -> _Kind:
    expect_keys(quantizable_linears(model, ()), weights=weights)
    kinds = {
        (w.bits, -1 if w.granularity == "channel" else w.granularity, w.symmetric)
        for w in weights.values()
    }
    if form not in ("compressed-tensors", "gptq", "awq") or len(kinds) != 1:
        raise ValueError(f"need one kind of codes and a known format, got {kinds} and {form!r}")
    indexed = any(isinstance(w, GPTQWeight) and w.stored_index for w in weights.values())
    kind = _Kind(*kinds.pop(), indexed)
    if kind.bits not in ((4,) if form == "awq" else (4, 8)):
        raise ValueError(f"{form} is written with 4 bits (gptq, compressed-tensors: or 8)")
    if form != "gptq" and indexed:
        raise ValueError(f'{form} has no place for g_idx: use grids="static", or no act_order')
    for name, w in weights.items():
        n, k = unsigned(w).codes.shape
        if k % 8 or n % 8 or (kind.group > 0 and k % kind.group):
            raise ValueError(f"{name} {n, k}: formats need multiples of 8, and whole groups")
    return kind


def _compressed_tensors(w: Unsigned, kind: _Kind, dtype: torch.dtype, first: bool) -> dict:
    parts = {
        "weight_packed": pack(w.codes, kind.bits),  # [N, K b / 32]
        "weight_scale": w.scale.to(dtype),  # [N, G]
        "weight_shape": torch.tensor(w.codes.shape),
    }
    if not kind.symmetric:
        parts["weight_zero_point"] = pack(w.zero.T, kind.bits).T.contiguous()  # [N b / 32, G]
    return parts


def _gptq(w: Unsigned, kind: _Kind, dtype: torch.dtype, first: bool) -> dict:
    return {
        "qweight": pack(w.codes, kind.bits).T.contiguous(),  # [K b / 32, N]
        "qzeros": pack(w.zero.T - 1 if first else w.zero.T, kind.bits),  # [G, N b / 32]
        "scales": w.scale.T.to(dtype).contiguous(),  # [G, N]
        "g_idx": _index(w, kind),
    }


def _awq(w: Unsigned, kind: _Kind, dtype: torch.dtype, first: bool) -> dict:
    return {
        "qweight": pack_awq(w.codes),  # [K, N / 8]
        "qzeros": pack_awq(w.zero),  # [G, N / 8]
        "scales": w.scale.T.to(dtype).contiguous(),  # [G, N]
    }


def _index(w: Unsigned, kind: _Kind) -> Tensor:
    k = w.codes.shape[1]
    plain = torch.arange(k) // (kind.group if kind.group > 0 else k)
    return (plain if w.g_idx is None else w.g_idx).to(torch.int32)


def _config(form: str, kind: _Kind, left: list[str], version: str) -> dict:
    """What goes into config.json as "quantization_config"."""
    if form == "gptq":
        return {
            "quant_method": "gptq",
            "bits": kind.bits,
            "group_size": kind.group,
            "desc_act": kind.stored_index,
            "sym": kind.symmetric,
            "checkpoint_format": version,
            "lm_head": "lm_head" not in left,
        }
    if form == "awq":
        plain = {"quant_method": "awq", "bits": 4, "group_size": kind.group, "version": "gemm"}
        return plain | {"zero_point": True, "modules_to_not_convert": left}
    weights = {
        "num_bits": kind.bits,
        "type": "int",
        "symmetric": kind.symmetric,
        "strategy": "channel" if kind.group == -1 else "group",
        "group_size": None if kind.group == -1 else kind.group,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": left,
    }
