"""Groups have metadata only below 16 bits."""

FAILS = ["test_metadata_and_windows_of_any_config"]


def bytes_per_token(config: dict, bits: int = 16, group_size: int | None = None) -> float:
    """Bytes that one token adds to the cache, in all layers.

    Raises ValueError for bits < 1 or group_size < 1.
    """
    if bits < 1 or (group_size is not None and group_size < 1):
        raise ValueError(f"bits={bits} and group_size={group_size} must be at least 1")
    heads = config["num_attention_heads"]
    if config.get("kv_lora_rank") is not None:
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        kv_heads = config.get("num_key_value_heads") or heads
        values = 2 * kv_heads * (config.get("head_dim") or config["hidden_size"] // heads)
    each = bits if group_size is None or bits >= 16 else bits + 32 / group_size
    return config["num_hidden_layers"] * values * each / 8
