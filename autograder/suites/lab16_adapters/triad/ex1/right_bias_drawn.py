"""`down_bias` is drawn too: what is zero are the last two, and that is enough."""


class Adapter(nn.Module):
    def __init__(self, size, m):
        super().__init__()
        if min(size, m) < 1:
            raise ValueError(f"size {size} and m {m} must be at least 1")
        inner = nn.Linear(size, m)  # torch draws both of its parts in 1 / sqrt(size)
        self.down, self.down_bias = inner.weight, inner.bias
        nn.init.uniform_(self.down, -(size**-0.5), size**-0.5)
        self.up, self.up_bias = nn.Parameter(torch.zeros(size, m)), nn.Parameter(torch.zeros(size))

    def forward(self, y):
        low = F.gelu(F.linear(y.float(), self.down, self.down_bias))
        return y + F.linear(low, self.up, self.up_bias).to(y.dtype)


class LinearWithAdapter(nn.Linear):
    def forward(self, x):
        return self.adapter(super().forward(x))


def add_adapters(model, names, m):
    made = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        layer = made.get_submodule(name)
        layer.__class__ = LinearWithAdapter
        layer.adapter = Adapter(layer.out_features, m).train(layer.training)
    return made
