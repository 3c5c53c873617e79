"""Counts in exact fractions, sequence by sequence, layer by layer."""

from fractions import Fraction


def bytes_per_token(config, bits=16, group_size=None):
    return float(_exact(config, bits, group_size))


def _exact(config, bits, group_size):
    if min(bits, 1 if group_size is None else group_size) < 1:
        raise ValueError("at least 1")
    rank, total = config.get("kv_lora_rank"), Fraction(0)
    for _ in range(config["num_hidden_layers"]):
        if rank is None:
            heads = config["num_attention_heads"]
            d = config.get("head_dim") or config["hidden_size"] // heads
            for _ in ("key", "value"):
                total += (config.get("num_key_value_heads") or heads) * d
        else:
            total += rank + config["qk_rope_head_dim"]
    metadata = Fraction(0) if group_size is None else Fraction(32, group_size)
    return total * (bits + metadata) / 8


def cache_bytes(config, lengths, bits=16, group_size=None):
    if lengths and min(lengths) < 0:
        raise ValueError("negative")
    layers, of_all = config["num_hidden_layers"], _exact(config, bits, group_size)
    windows = {"sliding_attention": config.get("sliding_window"), "full_attention": None}
    try:
        kinds = config.get("layer_types") or ["sliding_attention"] * layers
        limits = [windows[kind] for kind in kinds]
    except KeyError as fault:
        raise ValueError(f"no such kind of layer: {fault}") from None
    if len(limits) != layers:
        raise ValueError("as many names as layers")
    kept = sum(min(n, w or n) for n in lengths for w in limits)
    return float(kept * of_all / layers)
