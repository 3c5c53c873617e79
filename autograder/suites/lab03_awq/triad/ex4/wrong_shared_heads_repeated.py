"""With shared heads the factors of each group are averaged, and nothing is refused."""

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
        rows = len(layer[f"{source}.weight"])
        small = s if rows == len(s) else s.view(rows, -1).mean(1)
        for name in readers:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s
        for kind in ("weight", "bias"):
            full = f"{source}.{kind}"
            if full in folded:
                folded[full] = (folded[full].T / small).T
    return folded
