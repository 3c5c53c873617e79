"""The hints, word for word."""


def bill(way, size, shape):
    layers, d, f = shape["layers"], shape["hidden"], shape["mlp"]
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    q, kv = heads * head_dim, kv_heads * head_dim
    linears = [(q, d), (kv, d), (kv, d), (d, q), (f, d), (f, d), (d, f)]
    flops = read = context = 0
    if way == "lora":
        trained = layers * sum(size * (n + k) for n, k in linears)
        flops, read = 2 * trained, 2 * trained
    elif way == "adapter":
        trained = layers * 2 * (2 * d * size + size + d)
        flops, read = layers * 8 * d * size, 2 * trained
    elif way in ("prompt", "prefix"):
        context = size
        flops = size * layers * 4 * heads * head_dim
        read = 2 * size * layers * 2 * kv_heads * head_dim
        trained = size * d if way == "prompt" else read // 2
    elif way == "bitfit":
        trained = layers * sum(n for n, _ in linears)
        read = 2 * trained
    elif way == "random":
        trained = size
    else:
        raise ValueError(way)
    return {
        "trained": trained,
        "optimizer_bytes": 8 * trained,
        "flops": flops,
        "read_bytes": read,
        "context": context,
        "mergeable": way in ("lora", "random") or (way == "bitfit" and shape["biases"]),
        "batchable": way != "random",
        "untouched": way in ("prompt", "prefix"),
    }
