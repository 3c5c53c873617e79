"""Everything is made on the meta device and counted there."""


def bill(way, size, shape):
    if way not in ("lora", "adapter", "prompt", "prefix", "bitfit", "random"):
        raise ValueError("unknown")

    def made(*dims):
        return torch.empty(*dims, device="meta")

    d, f, e = shape["hidden"], shape["mlp"], shape["head_dim"]
    weights = [made(shape["heads"] * e, d), made(shape["kv_heads"] * e, d)]
    weights += [made(shape["kv_heads"] * e, d), made(d, shape["heads"] * e)]
    weights += [made(f, d), made(f, d), made(d, f)]
    keys = made(2, shape["kv_heads"], size if way in ("prompt", "prefix") else 0, e)
    block, products = [], 0
    if way == "lora":
        block = [t for w in weights for t in (made(size, w.shape[1]), made(w.shape[0], size))]
        products = sum(2 * t.numel() for t in block)
    if way == "adapter":
        for _ in range(2):
            matrices = [made(size, d), made(d, size)]
            products += sum(2 * m.numel() for m in matrices)
            block += [*matrices, made(size), made(d)]
    if way == "bitfit":
        block = [made(w.shape[0]) for w in weights]
    if way == "prefix":
        block = [keys]
    trained = shape["layers"] * sum(t.numel() for t in block)
    trained += {"prompt": size * d, "random": size}.get(way, 0)
    products += 2 * 2 * shape["heads"] * e * keys.shape[2]
    read = keys.numel() if keys.numel() else sum(t.numel() for t in block)
    flags = {
        "lora": (True, True, False),
        "adapter": (False, True, False),
        "prompt": (False, True, True),
        "prefix": (False, True, True),
        "bitfit": (bool(shape["biases"]), True, False),
        "random": (True, False, False),
    }[way]
    return {
        "trained": trained,
        "optimizer_bytes": 2 * 4 * trained,
        "flops": shape["layers"] * products,
        "read_bytes": 2 * shape["layers"] * read,
        "context": keys.shape[2],
    } | dict(zip(("mergeable", "batchable", "untouched"), flags, strict=True))
