"""What help and hints say, word for word."""


def bytes_per_token(config, bits=16, group_size=None):
    if bits < 1 or (group_size is not None and group_size < 1):
        raise ValueError("bits and group_size")
    layers = config["num_hidden_layers"]
    if config.get("kv_lora_rank") is not None:
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        kv_heads = config.get("num_key_value_heads")
        if kv_heads is None:
            kv_heads = config["num_attention_heads"]
        d = config.get("head_dim")
        if d is None:
            d = config["hidden_size"] // config["num_attention_heads"]
        values = 2 * kv_heads * d
    if group_size is None:
        return layers * values * bits / 8
    return layers * values * (bits + 32 / group_size) / 8


def cache_bytes(config, lengths, bits=16, group_size=None):
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    kinds = config.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention"] * layers
    if len(kinds) != layers:
        raise ValueError("a name for each layer")
    of_a_layer = bytes_per_token(config, bits, group_size) / layers
    total = 0
    for kind in kinds:
        if kind not in ("sliding_attention", "full_attention"):
            raise ValueError(kind)
        for length in lengths:
            if length < 0:
                raise ValueError("a negative length")
            sliding = window is not None and kind == "sliding_attention"
            total += min(length, window) if sliding else length
    return total * of_a_layer
