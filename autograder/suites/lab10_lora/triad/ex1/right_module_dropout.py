"""nn.Dropout, kaiming_uniform_, F.linear, and parents searched by name."""


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__()
        if not (r >= 1 and 0.0 <= dropout < 1.0):
            raise ValueError("r >= 1 and 0 <= dropout < 1")
        self.base = base
        self.base.requires_grad_(False)
        self.drop = nn.Dropout(dropout)
        self.a = nn.Parameter(torch.zeros(r, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha * r ** (-0.5 if rank_stabilized else -1.0)

    def forward(self, x):
        update = F.linear(F.linear(self.drop(x.to(torch.float32)), self.a), self.b)
        y = self.base(x)
        return y + update.mul(self.scale).type_as(y)


def add_lora(model, names, r, alpha):
    new = copy.deepcopy(model)
    for parameter in new.parameters():
        parameter.requires_grad_(False)
    for name in names:
        *path, last = name.split(".")
        parent = new.get_submodule(".".join(path))
        layer = getattr(parent, last)
        made = LoRALinear(layer, r, alpha)
        made.train(layer.training)
        setattr(parent, last, made)
    return new
