"""A sentence is a shorter sentence and one more pass; tensors by their shapes."""

import math


def parameters(config):
    d, vocab = config["hidden_size"], config["vocab_size"]
    sizes = [vocab * d] + [d, d, layer_weights(config)] * config["num_hidden_layers"] + [d]
    if config.get("tie_word_embeddings") in (None, False):
        sizes.append(vocab * d)
    return sum(sizes)


def chinchilla(compute, ratio=20.0):
    if not (compute > 0 and ratio > 0):
        raise ValueError("compute and ratio")
    n = math.exp((math.log(compute) - math.log(6) - math.log(ratio)) / 2)
    return n, n * ratio


def _passes(prompt, new):
    if new == 1:
        return [(prompt, 0)]
    return [*_passes(prompt, new - 1), (1, prompt + new - 2)]


def sentence_joules(config, prompt, new, machine, batch=1, bits=16, kv_bits=16):
    if not (prompt >= 1 and new >= 1):
        raise ValueError("prompt and new")
    m, total = machine, 0.0
    for tokens, cached in _passes(prompt, new):
        f = step_flops(config, tokens, cached, batch)
        b = step_bytes(config, tokens, cached, batch, bits, kv_bits)
        t = seconds(f, b, m["peak"], m["bandwidth"])
        share = (f * m["joules_per_flop"], b * m["joules_per_byte"], t * m["idle_watts"])
        total += sum(share) / batch
    return total
