"""What the hints say, word for word."""


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__()
        if r < 1:
            raise ValueError("r")
        if dropout < 0 or dropout >= 1:
            raise ValueError("dropout")
        self.base = base
        for p in base.parameters():
            p.requires_grad = False
        self.dropout = dropout
        bound = base.in_features**-0.5
        self.a = nn.Parameter(torch.empty(r, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r**0.5 if rank_stabilized else alpha / r

    def forward(self, x):
        y = self.base(x)
        low = F.dropout(x.float(), self.dropout, self.training) @ self.a.T
        return y + (self.scale * (low @ self.b.T)).to(y.dtype)


def add_lora(model, names, r, alpha):
    model = copy.deepcopy(model)
    model.requires_grad_(False)
    for name in names:
        base = model.get_submodule(name)
        new = LoRALinear(base, r, alpha)
        new.train(base.training)
        model.set_submodule(name, new)
    return model
