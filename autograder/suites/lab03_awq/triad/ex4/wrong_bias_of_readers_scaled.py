"""The biases of the linears that read are multiplied where the lengths allow it."""

FAILS = ["test_inputs_from_a_norm"]

RULES = {
    "qkv": ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    "o": ("self_attn.v_proj", ("self_attn.o_proj",)),
    "gate_up": ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    "down": ("mlp.up_proj", ("mlp.down_proj",)),
}


def fold_layer(layer, scales):
    folded = dict(layer)
    for key, s in scales.items():
        source, readers = RULES[key]
        if len(layer[f"{source}.weight"]) != len(s):
            raise ValueError("shared heads")
        for name in readers:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s
            bias = folded.get(f"{name}.bias")
            if bias is not None:
                folded[f"{name}.bias"] = bias * s.mean()
        for kind in ("weight", "bias"):
            full = f"{source}.{kind}"
            if full in folded:
                folded[full] = (folded[full].T / s).T
    return folded
