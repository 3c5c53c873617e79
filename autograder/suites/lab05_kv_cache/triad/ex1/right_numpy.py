"""Arrays of lengths; floats come back."""

import numpy as np


def bytes_per_token(config, bits=16, group_size=None):
    if not bits >= 1:
        raise ValueError(bits)
    per_value = np.float64(bits)
    if group_size is not None:
        if not group_size >= 1:
            raise ValueError(group_size)
        per_value += 32 / group_size
    c = {name: value for name, value in config.items() if value is not None}
    if "kv_lora_rank" in c:
        width = c["kv_lora_rank"] + c["qk_rope_head_dim"]
    else:
        d = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
        width = 2 * d * c.get("num_key_value_heads", c["num_attention_heads"])
    return float(np.prod([c["num_hidden_layers"], width]) * per_value / 8)


def cache_bytes(config, lengths, bits=16, group_size=None):
    tokens = np.array(lengths, dtype=np.int64)
    if (tokens < 0).any():
        raise ValueError(lengths)
    layers, kinds = config["num_hidden_layers"], config.get("layer_types")
    full = np.zeros(layers, dtype=bool)
    if kinds is not None:
        names = np.array(kinds)
        full = names == "full_attention"
        if full.shape != (layers,) or not (full | (names == "sliding_attention")).all():
            raise ValueError(kinds)
    short = tokens
    if config.get("sliding_window") is not None:
        short = tokens.clip(max=config["sliding_window"])
    share = full.sum() / layers
    total = share * tokens.sum() + (1 - share) * short.sum()
    return float(total) * bytes_per_token(config, bits, group_size)
