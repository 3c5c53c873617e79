"""The hints, word for word."""


def add_biases(model, names):
    model = copy.deepcopy(model)
    model.requires_grad_(False)
    for name in names:
        layer = model.get_submodule(name)
        if layer.bias is None:
            layer.bias = nn.Parameter(torch.zeros_like(layer.weight[:, 0]))
        else:
            layer.bias.requires_grad_(True)
    return model


def draw(sizes, n, seed):
    total = sum(sizes)
    if n < 0 or n > total:
        raise ValueError(f"{n} of {total}")
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(total, generator=generator)[:n].sort().values
    parts, start = [], 0
    for size in sizes:
        own = places[(places >= start) & (places < start + size)]
        parts.append(own - start)
        start += size
    return parts


class SparseLinear(nn.Module):
    def __init__(self, base, places):
        super().__init__()
        self.base, self.places = base.requires_grad_(False), places
        self.delta = nn.Parameter(torch.zeros(places.shape[0]))

    def forward(self, x):
        w = self.base.weight
        flat = w.float().flatten().index_add(0, self.places, self.delta)
        return F.linear(x, flat.view(w.shape).to(w.dtype), self.base.bias)
