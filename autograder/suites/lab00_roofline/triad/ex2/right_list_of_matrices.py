"""A list of (rows, columns, vectors it is multiplied with); pairs as a difference of triangles."""


def _matrices(config):
    given = {name: value for name, value in config.items() if value is not None}
    hidden, heads = given["hidden_size"], given["num_attention_heads"]
    d = given.get("head_dim", hidden // heads)
    kv = given.get("num_key_value_heads", heads) * d
    up = [(hidden, given["intermediate_size"])] * (2 if given.get("gated_mlp", True) else 1)
    return [(hidden, heads * d), (hidden, kv), (hidden, kv), (heads * d, hidden), *up,
            (given["intermediate_size"], hidden)]  # fmt: skip


def layer_weights(config):
    return sum(a * b for a, b in _matrices(config))


def pairs(new, cached=0):
    if not (new > 0 and cached >= 0):
        raise ValueError((new, cached))
    return _triangle(cached + new) - _triangle(cached)


def _triangle(n):
    return n * (n + 1) // 2


def step_flops(config, new, cached=0, batch=1):
    if not batch > 0:
        raise ValueError(batch)
    layers, wide = config["num_hidden_layers"], _matrices(config)[0][1]
    per_sequence = 2 * new * layer_weights(config) * layers
    per_sequence += 4 * wide * layers * pairs(new, cached)
    return batch * (per_sequence + 2 * config["hidden_size"] * config["vocab_size"])


def step_bytes(config, new, cached=0, batch=1, bits=16, kv_bits=16):
    pairs(new, cached)  # refuses what is no pass
    if not (batch > 0 and bits > 0 and kv_bits > 0):
        raise ValueError((batch, bits, kv_bits))
    layers, narrow = config["num_hidden_layers"], _matrices(config)[1][1]
    stored = (layer_weights(config) * layers + config["hidden_size"] * config["vocab_size"]) * bits
    states = (cached + new) * batch * 2 * narrow * layers * kv_bits
    return (stored + states) / 8
