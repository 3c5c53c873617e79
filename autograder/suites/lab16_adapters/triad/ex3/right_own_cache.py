"""A cache of its own that grows by cat; a prompt's prefix is collected by a cache that listens."""


def prefix_numbers(shape, n):
    key = shape["kv_heads"] * shape["head_dim"]
    return sum(key * n + key * n for _ in range(shape["layers"]))


class Grown:
    def __init__(self):
        self.keys, self.values = [], []

    @property
    def length(self):
        return self.keys[0].shape[2] if self.keys else 0

    def append(self, layer, k, v):
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], 2)
            self.values[layer] = torch.cat([self.values[layer], v], 2)
        return self.keys[layer], self.values[layer]


def prefix_cache(prefixes):
    shapes = [tuple(p.shape) for p in prefixes]
    if not shapes or shapes.count(shapes[0]) < len(shapes):
        raise ValueError(f"{shapes}")
    cache = Grown()
    for layer in range(shapes[0][0]):
        cache.keys.append(torch.stack([p[layer][0] for p in prefixes]))
        cache.values.append(torch.stack([p[layer][1] for p in prefixes]))
    return cache


def prefix_of(model, prompt):
    cache = Grown()
    for i in range(len(prompt)):  # token by token
        logits_of_vectors(model, prompt[None, i : i + 1], cache)
    return torch.stack([torch.stack(cache.keys), torch.stack(cache.values)], 1)[:, :, 0]
