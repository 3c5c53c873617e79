"""Folded in float64, and returned so."""

FAILS = ["test_inputs_from_a_norm", "test_every_tensor_against_float64"]

RULES = {
    "qkv": ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    "o": ("self_attn.v_proj", ("self_attn.o_proj",)),
    "gate_up": ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    "down": ("mlp.up_proj", ("mlp.down_proj",)),
}


def fold_layer(layer, scales):
    folded = {k: v.double() for k, v in layer.items()}
    for key, s in scales.items():
        source, readers = RULES[key]
        if len(layer[f"{source}.weight"]) != len(s):
            raise ValueError("shared heads")
        for name in readers:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s
        for kind in ("weight", "bias"):
            full = f"{source}.{kind}"
            if full in folded:
                folded[full] = (folded[full].T / s).T
    return folded
