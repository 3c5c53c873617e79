"""Modules in place of names: a small class that knows its own weight and bias."""


class Part:
    def __init__(self, layer, name):
        self.layer, self.name = layer, name

    def reads(self, s):
        key = self.name + ".weight"
        self.layer[key] = self.layer[key].mul(s.view(1, -1))
        return self

    def makes(self, s):
        for key in (self.name + ".weight", self.name + ".bias"):
            if self.layer.get(key) is not None:
                shape = (-1,) + (1,) * (self.layer[key].ndim - 1)
                self.layer[key] = self.layer[key].div(s.reshape(shape))


def fold_layer(layer, scales):
    new = {key: value.clone() for key, value in layer.items()}
    q, k, v, o = (Part(new, f"self_attn.{x}_proj") for x in "qkvo")
    gate, up, down = (Part(new, f"mlp.{x}_proj") for x in ("gate", "up", "down"))
    plan = [("qkv", Part(new, "input_layernorm"), [q, k, v]), ("o", v, [o])]
    plan += [("gate_up", Part(new, "post_attention_layernorm"), [gate, up]), ("down", up, [down])]
    for key, before, after in plan:
        s = scales.get(key)
        if s is None:
            continue
        if new[before.name + ".weight"].shape[0] != s.numel():
            raise ValueError(f"{before.name} does not make {s.numel()} channels")
        for part in after:
            part.reads(s)
        before.makes(s)
    return new
