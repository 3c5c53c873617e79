"""The hints, word for word."""


def prefix_numbers(shape, n):
    return 2 * n * shape["layers"] * shape["kv_heads"] * shape["head_dim"]


def prefix_cache(prefixes):
    if len(prefixes) == 0 or len({p.shape for p in prefixes}) > 1:
        raise ValueError("prefixes of one shape")
    rows = torch.stack(list(prefixes))
    cache = KVCache()
    for layer in range(rows.shape[1]):
        cache.append(layer, rows[:, layer, 0], rows[:, layer, 1])
    return cache


def prefix_of(model, prompt):
    cache = KVCache()
    logits_of_vectors(model, prompt[None], cache)
    blocks = []
    for k, v in zip(cache.keys, cache.values, strict=True):
        blocks.append(torch.stack([k[0], v[0]]))
    return torch.stack(blocks)
