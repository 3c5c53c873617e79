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
    kept = [min(n, config.get("sliding_window") or n) for n in lengths]
    each = _exact(config, bits, group_size)
    return float(sum((n * each for n in kept), start=Fraction(0)))
