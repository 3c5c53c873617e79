"""More than 16 bits count as 16."""

FAILS = ["test_any_config"]


def bytes_per_token(config: dict, bits: int = 16, group_size: int | None = None) -> float:
    if bits < 1 or (group_size is not None and group_size < 1):
        raise ValueError("at least 1")
    heads = config["num_attention_heads"]
    if config.get("kv_lora_rank") is not None:
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        kv_heads = config.get("num_key_value_heads") or heads
        values = 2 * kv_heads * (config.get("head_dim") or config["hidden_size"] // heads)
    each = min(bits, 16) + (0 if group_size is None else 32 / group_size)
    return config["num_hidden_layers"] * values * each / 8
