"""With shared heads the scales of o are ignored in silence."""

FAILS = ["test_all_at_once_and_shared_heads", "test_shared_heads"]

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
            continue
        for name in readers:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s
        for kind in ("weight", "bias"):
            full = f"{source}.{kind}"
            if full in folded:
                folded[full] = (folded[full].T / s).T
    return folded
