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
    window, total = config.get("sliding_window"), 0
    for length in lengths:
        if length < 0:
            raise ValueError("a negative length")
        total += length if window is None else min(length, window)
    return total * bytes_per_token(config, bits, group_size)
