"""From the shapes themselves, in the course's symbols; nothing of exercise 2."""

import math


def _parts(config, kv_bits):
    """(weights, FLOPs of a token that is seen, its bytes)"""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    heads = config["num_attention_heads"]
    d = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    mlp = (2 if config.get("gated_mlp") is False else 3) * hidden * config["intermediate_size"]
    layer = 2 * hidden * d * (heads + kv_heads) + mlp
    weights = layers * layer + config["vocab_size"] * hidden
    return weights, 4 * layers * heads * d, layers * kv_heads * d * kv_bits / 4


def ridge_batch(config, context, peak, bandwidth, bits=16, kv_bits=16):
    if context < 0 or min(peak, bandwidth, bits, kv_bits) <= 0:
        raise ValueError((context, peak, bandwidth, bits, kv_bits))
    weights, flops, moved = _parts(config, kv_bits)
    seen = context + 1
    lead = (2 * weights + flops * seen) * bandwidth - moved * seen * peak
    return weights * bits / 8 * peak / lead if lead > 0 else math.inf


def ridge_context(config, peak, bandwidth, kv_bits=16):
    if min(peak, bandwidth, kv_bits) <= 0:
        raise ValueError((peak, bandwidth, kv_bits))
    weights, flops, moved = _parts(config, kv_bits)
    slope = moved * peak - flops * bandwidth
    if slope <= 0:
        return math.inf
    context = 2 * weights * bandwidth / slope - 1
    return context if context > 0 else 0.0
