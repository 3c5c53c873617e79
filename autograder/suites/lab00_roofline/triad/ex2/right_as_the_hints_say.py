"""What help and hints say, word for word."""


def _sizes(config):
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads")
    if kv_heads is None:
        kv_heads = heads
    d = config.get("head_dim")
    if d is None:
        d = config["hidden_size"] // heads
    return heads, kv_heads, d


def layer_weights(config):
    heads, kv_heads, d = _sizes(config)
    hidden, inside = config["hidden_size"], config["intermediate_size"]
    q, o = hidden * heads * d, heads * d * hidden
    k = v = hidden * kv_heads * d
    if config.get("gated_mlp") is False:
        mlp = 2 * hidden * inside
    else:
        mlp = 3 * hidden * inside
    return q + k + v + o + mlp


def pairs(new, cached=0):
    if new < 1 or cached < 0:
        raise ValueError("pairs")
    return sum(cached + i for i in range(1, new + 1))


def step_flops(config, new, cached=0, batch=1):
    if batch < 1:
        raise ValueError("batch")
    heads, _, d = _sizes(config)
    seen = pairs(new, cached)
    products = 0
    for _ in range(config["num_hidden_layers"]):
        products += new * layer_weights(config) + seen * heads * (d + d)
    products += config["vocab_size"] * config["hidden_size"]
    return 2 * products * batch


def step_bytes(config, new, cached=0, batch=1, bits=16, kv_bits=16):
    if new < 1 or batch < 1 or cached < 0 or bits <= 0 or kv_bits <= 0:
        raise ValueError("step_bytes")
    _, kv_heads, d = _sizes(config)
    layers = config["num_hidden_layers"]
    weights = layers * layer_weights(config) + config["vocab_size"] * config["hidden_size"]
    token = 2 * kv_heads * d * layers
    return weights * bits / 8 + token * (cached + new) * batch * kv_bits / 8
