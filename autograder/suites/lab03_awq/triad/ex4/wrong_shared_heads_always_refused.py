"""A layer with shared heads is refused, also without scales of o."""

FAILS = ["test_all_at_once_and_shared_heads", "test_shared_heads"]

RULES = {
    "qkv": ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    "o": ("self_attn.v_proj", ("self_attn.o_proj",)),
    "gate_up": ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    "down": ("mlp.up_proj", ("mlp.down_proj",)),
}


def fold_layer(layer, scales):
    folded = dict(layer)
    if len(layer["self_attn.v_proj.weight"]) != len(layer["self_attn.q_proj.weight"]):
        raise ValueError("shared heads")
    for key, s in scales.items():
        source, readers = RULES[key]
        assert len(s)
        for name in readers:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s
        for kind in ("weight", "bias"):
            full = f"{source}.{kind}"
            if full in folded:
                folded[full] = (folded[full].T / s).T
    return folded
