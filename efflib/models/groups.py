"""Which linears read the output of which norm, found by the parameter names of Hugging Face.

Techniques that move a factor or an offset from activations into weights (SmoothQuant, AWQ, the
outlier emulation of the zoo) need to know every linear that shares one norm: what is done to the
norm's output must be undone in all of them.

GPT-2 has no nn.Linear in its layers but Conv1D of transformers, whose weight is [in, out]. What
works on weights [out, in] would read it the wrong way round, silently where it is square. So
`norm_groups` refuses such a layer, and `with_linears` gives a copy of the model, with the same
function, that has an nn.Linear in place of every Conv1D.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn

# norm -> the linears that read it, relative to one layer of the model
LAYOUTS = {
    "Llama, Mistral, Qwen2": {
        "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
    },
    "OPT": {
        "self_attn_layer_norm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "final_layer_norm": ("fc1",),
    },
    "GPT-2 (after with_linears)": {
        "ln_1": ("attn.c_attn",),
        "ln_2": ("mlp.c_fc",),
    },
}


class NormGroup(NamedTuple):
    """A norm and the linears that read its output; the names are full dotted names."""

    name: str
    norm: nn.Module
    linears: dict[str, nn.Linear]


def norm_groups(model: nn.Module) -> list[NormGroup]:
    """Every norm of the model's layers with its linears, in the order of the layers.

    Raises ValueError, naming the layouts that are known, if the model has none of them, and for a
    reader that is no nn.Linear.
    """
    modules = dict(model.named_modules())
    found = []
    for name, module in modules.items():
        for layout in LAYOUTS.values():
            prefix, _, last = name.rpartition(".")
            readers = {f"{prefix}.{reader}" for reader in layout.get(last, ())}
            if readers and readers <= modules.keys():
                linears = {reader: modules[reader] for reader in sorted(readers)}
                _expect_linears(linears)
                found.append(NormGroup(name, module, linears))
    if not found:
        known = "; ".join(f"{kind}: {', '.join(layout)}" for kind, layout in LAYOUTS.items())
        raise ValueError(f"{type(model).__name__} has no norm of a known layout ({known})")
    return found


def _expect_linears(readers: dict[str, nn.Module]) -> None:
    for name, module in readers.items():
        if not isinstance(module, nn.Linear):
            kind = type(module).__name__
            hint = ": call with_linears(model) first" if kind == "Conv1D" else ""
            raise ValueError(f"{name} is a {kind}, not an nn.Linear{hint}")


def with_linears(model: nn.Module) -> nn.Module:
    """A copy of the model with an nn.Linear [out, in] for every Conv1D [in, out] of transformers.

    The function is the same; the names of layers and parameters stay, weights are transposed.
    """
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if type(module).__name__ != "Conv1D":
            continue
        weight = module.weight.detach()  # [in, out]
        linear = nn.Linear(*weight.shape, device=weight.device, dtype=weight.dtype)
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(module.bias)
        model.set_submodule(name, linear.train(module.training))
    return model
