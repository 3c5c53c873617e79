"""The help and the last hint, line by line."""


def fold_layer(layer, scales):
    folded = dict(layer)

    def multiply(name, s):
        folded[f"{name}.weight"] = folded[f"{name}.weight"] * s

    def divide(name, s):
        weight = folded[f"{name}.weight"]
        folded[f"{name}.weight"] = weight / s if weight.dim() == 1 else weight / s[:, None]
        if f"{name}.bias" in folded:
            folded[f"{name}.bias"] = folded[f"{name}.bias"] / s

    if "qkv" in scales:
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            multiply(name, scales["qkv"])
        divide("input_layernorm", scales["qkv"])
    if "gate_up" in scales:
        for name in ("mlp.gate_proj", "mlp.up_proj"):
            multiply(name, scales["gate_up"])
        divide("post_attention_layernorm", scales["gate_up"])
    if "o" in scales:
        if layer["self_attn.v_proj.weight"].shape[0] != layer["self_attn.o_proj.weight"].shape[1]:
            raise ValueError("a row of v_proj feeds several channels of o_proj")
        multiply("self_attn.o_proj", scales["o"])
        divide("self_attn.v_proj", scales["o"])
    if "down" in scales:
        multiply("mlp.down_proj", scales["down"])
        divide("mlp.up_proj", scales["down"])
    return folded
