"""Each term of the energy added up by itself; the root as a power."""


def parameters(config):
    d, n = config["hidden_size"], config["num_hidden_layers"]
    tied = bool(config.get("tie_word_embeddings"))
    return d * (config["vocab_size"] * (2 - tied) + 2 * n + 1) + layer_weights(config) * n


def chinchilla(compute, ratio=20.0):
    if min(compute, ratio) <= 0:
        raise ValueError((compute, ratio))
    tokens = (compute * ratio / 6) ** 0.5
    return tokens / ratio, tokens


def sentence_joules(config, prompt, new, machine, batch=1, bits=16, kv_bits=16):
    if min(prompt, new) <= 0:
        raise ValueError((prompt, new))
    asked = [(prompt, 0)] + [(1, prompt + new - 1 - left) for left in range(new - 1, 0, -1)]
    flops = [step_flops(config, *a, batch) for a in asked]
    moved = [step_bytes(config, *a, batch, bits, kv_bits) for a in asked]
    rates = machine["peak"], machine["bandwidth"]
    took = [seconds(f, m, *rates) for f, m in zip(flops, moved, strict=True)]
    prices = machine["joules_per_flop"], machine["joules_per_byte"], machine["idle_watts"]
    terms = (sum(flops), sum(moved), sum(took))
    return sum(price * term for price, term in zip(prices, terms, strict=True)) / batch
