"""Products with diag(s) and diag(1 / s), on copies, in float64."""

import torch


def fold_layer(layer, scales):
    new = {name: tensor.clone().double() for name, tensor in layer.items()}
    made, read = len(layer["self_attn.v_proj.weight"]), layer["self_attn.o_proj.weight"].shape[1]
    if "o" in scales and made < read:
        raise ValueError("grouped queries")
    order = {
        "down": (["mlp.down_proj"], "mlp.up_proj"),
        "o": (["self_attn.o_proj"], "self_attn.v_proj"),
        "qkv": ([f"self_attn.{n}_proj" for n in "qkv"], "input_layernorm"),
        "gate_up": (["mlp.gate_proj", "mlp.up_proj"], "post_attention_layernorm"),
    }
    for key, (readers, source) in order.items():
        if key not in scales:
            continue
        up, down = torch.diag(scales[key].double()), torch.diag(1 / scales[key].double())
        for name in readers:
            new[name + ".weight"] = new[name + ".weight"] @ up
        new[source + ".weight"] = down @ new[source + ".weight"]
        if source + ".bias" in new:
            new[source + ".bias"] = down @ new[source + ".bias"]
    return {name: tensor.float() for name, tensor in new.items()}
