"""Which linears read the output of which norm, found by the parameter names of Hugging Face.

Techniques that move a factor or an offset from activations into weights (SmoothQuant, AWQ, the
outlier emulation of the zoo) need to know every linear that shares one norm: what is done to the
norm's output must be undone in all of them.
"""

from typing import NamedTuple

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
}


class NormGroup(NamedTuple):
    """A norm and the linears that read its output; the names are full dotted names."""

    name: str
    norm: nn.Module
    linears: dict[str, nn.Linear]


def norm_groups(model: nn.Module) -> list[NormGroup]:
    """Every norm of the model's layers with its linears, in the order of the layers.

    Raises ValueError, naming the layouts that are known, if the model has none of them.
    """
    modules = dict(model.named_modules())
    found = []
    for name, module in modules.items():
        for layout in LAYOUTS.values():
            prefix, _, last = name.rpartition(".")
            readers = {f"{prefix}.{reader}" for reader in layout.get(last, ())}
            if readers and readers <= modules.keys():
                linears = {reader: modules[reader] for reader in sorted(readers)}
                found.append(NormGroup(name, module, linears))
    if not found:
        known = "; ".join(f"{kind}: {', '.join(layout)}" for kind, layout in LAYOUTS.items())
        raise ValueError(f"{type(model).__name__} has no norm of a known layout ({known})")
    return found
