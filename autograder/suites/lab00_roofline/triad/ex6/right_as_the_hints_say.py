"""What help and hints say, word for word."""

import math


def parameters(config):
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    table = config["vocab_size"] * hidden
    total = table
    if not config.get("tie_word_embeddings"):
        total += table  # lm_head
    for _ in range(layers):
        total += layer_weights(config) + 2 * hidden
    return total + hidden


def chinchilla(compute, ratio=20.0):
    if compute <= 0 or ratio <= 0:
        raise ValueError("above 0")
    n = math.sqrt(compute / 6 / ratio)
    return n, ratio * n


def sentence_joules(config, prompt, new, machine, batch=1, bits=16, kv_bits=16):
    if prompt < 1 or new < 1:
        raise ValueError("tokens")

    def joules(tokens, cached):
        flops = step_flops(config, tokens, cached, batch)
        moved = step_bytes(config, tokens, cached, batch, bits, kv_bits)
        took = seconds(flops, moved, machine["peak"], machine["bandwidth"])
        of_work = machine["joules_per_flop"] * flops + machine["joules_per_byte"] * moved
        return of_work + machine["idle_watts"] * took

    total = joules(prompt, 0)
    for i in range(new - 1):
        total += joules(1, prompt + i)
    return total / batch
