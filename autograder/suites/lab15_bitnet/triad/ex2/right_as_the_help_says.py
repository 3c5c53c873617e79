"""Help and hints, word for word."""


def round_tokens(x):
    with torch.no_grad():
        wide = x.float()
        largest = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)
        u = 127 / largest
        rounded = torch.clamp(torch.round(wide * u), -128, 127) / u
        rounded = rounded.to(x.dtype)
    return rounded.detach() + (x - x.detach())


class BitLinear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias

    def forward(self, x):
        with torch.no_grad():
            codes, scale = absmean(self.weight, False)
            rounded = (codes.float() * scale).to(self.weight.dtype)
        weight = rounded + (self.weight - self.weight.detach())
        return F.linear(round_tokens(x), weight, self.bias)
