"""gelu by the normal distribution, the sum rounded once; a module that wraps, set by setattr."""


class Adapter(nn.Module):
    def __init__(self, size, m):
        super().__init__()
        if min(size, m) < 1:
            raise ValueError(f"{size} and {m}")
        start = (2 * torch.rand(m, size) - 1) / math.sqrt(size)
        self.register_parameter("down", nn.Parameter(start))
        self.register_parameter("down_bias", nn.Parameter(torch.zeros(m)))
        self.register_parameter("up", nn.Parameter(torch.zeros(size, m)))
        self.register_parameter("up_bias", nn.Parameter(torch.zeros(size)))

    def forward(self, y):
        low = torch.einsum("...k,mk->...m", y.to(torch.float32), self.down) + self.down_bias
        low = low * 0.5 * (1 + torch.erf(low / math.sqrt(2)))
        added = torch.einsum("...m,km->...k", low, self.up) + self.up_bias
        return (y.to(torch.float32) + added).to(y.dtype)


class Both(nn.Module):
    def __init__(self, layer, adapter):
        super().__init__()
        self.layer, self.adapter = layer, adapter
        self.training = layer.training

    def forward(self, x):
        return self.adapter(self.layer(x))


def add_adapters(model, names, m):
    made = copy.deepcopy(model)
    for p in made.parameters():
        p.requires_grad = False
    for name in names:
        parent, _, last = name.rpartition(".")
        layer = made.get_submodule(name)
        adapter = Adapter(layer.out_features, m)
        adapter.training = layer.training
        setattr(made.get_submodule(parent), last, Both(layer, adapter))
    return made
