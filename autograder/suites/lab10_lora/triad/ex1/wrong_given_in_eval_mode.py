"""The model that was given is left in eval mode."""

FAILS = ["test_nested_models"]


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__()
        if r < 1 or not 0 <= dropout < 1:
            raise ValueError("r or dropout")
        self.base = base
        base.requires_grad_(False)
        bound = 1 / math.sqrt(base.in_features)
        self.a = nn.Parameter(torch.empty(r, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / math.sqrt(r) if rank_stabilized else alpha / r
        self.p = dropout

    def forward(self, x):
        y = self.base(x)
        low = F.dropout(x.float(), self.p, self.training)
        up = self.scale * (low @ self.a.T @ self.b.T)
        return y + up.to(y.dtype)


def add_lora(model, names, r, alpha):
    mode = model.training
    model = copy.deepcopy(model.eval())
    model.requires_grad_(False)
    for name in names:
        layer = LoRALinear(model.get_submodule(name), r, alpha)
        model.set_submodule(name, layer)
    return model.train(mode)
