"""A mask drawn by hand, einsum, and a sum in float32 that is rounded once."""


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__()
        if r < 1 or not 0 <= dropout < 1:
            raise ValueError((r, dropout))
        self.base = base.requires_grad_(False)
        self.p = dropout
        self.a = nn.Parameter((2 * torch.rand(r, base.in_features) - 1) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros((base.out_features, r)))
        self.scale = alpha / (math.sqrt(r) if rank_stabilized else r)

    def forward(self, x):
        y, seen = self.base(x), x.float()
        if self.training and self.p > 0:
            seen = seen * (torch.rand(seen.shape) >= self.p) / (1 - self.p)
        low = torch.einsum("...k,rk->...r", seen, self.a)
        update = torch.einsum("...r,nr->...n", low, self.b)
        return (y.float() + self.scale * update).to(y.dtype)


def add_lora(model, names, r, alpha):
    model = copy.deepcopy(model)
    model.requires_grad_(False)
    for name in names:
        old = model.get_submodule(name)
        model.set_submodule(name, LoRALinear(old, r, alpha).train(old.training))
    return model
