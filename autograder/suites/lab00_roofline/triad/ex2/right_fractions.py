"""Exact fractions, a function for each part, floats at the end."""

from fractions import Fraction as F


def _get(config, name, otherwise):
    value = config.get(name)
    return otherwise if value is None else value


def _d(config):
    return _get(config, "head_dim", config["hidden_size"] // config["num_attention_heads"])


def _kv_width(config):
    return _get(config, "num_key_value_heads", config["num_attention_heads"]) * _d(config)


def layer_weights(config):
    hidden = config["hidden_size"]
    attention = 2 * hidden * (config["num_attention_heads"] * _d(config) + _kv_width(config))
    return attention + hidden * config["intermediate_size"] * (2 + _get(config, "gated_mlp", True))


def pairs(new, cached=0):
    if min(new - 1, cached) < 0:
        raise ValueError("at least one new token, and no fewer than 0 cached ones")
    return int(F(new) * (F(2 * cached + new + 1) / 2))  # a mean of what they see


def step_flops(config, new, cached=0, batch=1):
    seen = pairs(new, cached)
    if batch <= 0:
        raise ValueError("no sequence")
    layer = new * layer_weights(config)
    layer += 2 * config["num_attention_heads"] * _d(config) * seen
    head = config["vocab_size"] * config["hidden_size"]
    return sum([2 * (layer * config["num_hidden_layers"] + head)] * batch)


def step_bytes(config, new, cached=0, batch=1, bits=16, kv_bits=16):
    if new <= 0 or cached < 0 or batch <= 0:
        raise ValueError("no pass")
    if bits <= 0 or kv_bits <= 0:
        raise ValueError("no bits")
    weights = layer_weights(config) * config["num_hidden_layers"]
    weights += config["vocab_size"] * config["hidden_size"]
    states = 2 * _kv_width(config) * config["num_hidden_layers"] * (new + cached) * batch
    return float(weights * F(bits) / 8 + states * F(kv_bits) / 8)
