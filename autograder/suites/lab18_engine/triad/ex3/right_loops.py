# Column group by column group, codes from the left end of the range; the copy by recursion.


class Packed(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        self.group, self.out, self.inputs = group, weight.shape[0], weight.shape[1]
        scales, zeros, codes = [], [], []
        for part in weight.detach().to(torch.float32).split(group, 1):
            low = part.min(1, keepdim=True).values.clamp_max(0.0)
            high = part.max(1, keepdim=True).values.clamp_min(0.0)
            s = ((high - low) / 15).clamp_min(2**-14).to(torch.float16)
            z = (-low / s.float()).round().clamp(0, 15)
            codes.append(((part / s.float()).round() + z).clamp(0, 15))
            scales.append(s)
            zeros.append(z)
        self.scales = nn.Buffer(torch.cat(scales, 1))
        self.zeros = nn.Buffer(self.shut(torch.cat(zeros, 1)))
        self.codes = nn.Buffer(self.shut(torch.cat(codes, 1)))
        self.offset = nn.Buffer(bias.detach().clone()) if bias is not None else None

    def shut(self, codes):
        codes = F.pad(codes.byte(), (0, codes.shape[1] % 2))
        return codes[:, ::2].bitwise_or(codes[:, 1::2].bitwise_left_shift(4))

    def opened(self, stored, count):
        both = torch.stack((stored.bitwise_and(15), stored.bitwise_right_shift(4)), -1)
        return both.flatten(1)[:, :count].to(torch.float32)

    def decoded(self):
        codes = self.opened(self.codes, self.inputs).split(self.group, 1)
        zeros = self.opened(self.zeros, self.scales.shape[1])
        columns = [
            (c - zeros[:, i : i + 1]) * self.scales[:, i : i + 1].float()
            for i, c in enumerate(codes)
        ]
        return torch.cat(columns, 1)

    def forward(self, x):
        y = torch.matmul(x, self.decoded().to(x.dtype).t())
        return y if self.offset is None else y + self.offset


def quantized(model, group):
    from copy import deepcopy

    model = deepcopy(model)
    users = {}
    for module in model.modules():
        for p in module._parameters.values():
            users.setdefault(id(p), []).append(module)

    def visit(parent):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and len(users[id(child.weight)]) == 1:
                setattr(parent, name, Packed(child.weight, child.bias, group)) if not isinstance(
                    parent, (nn.Sequential, nn.ModuleList, nn.ModuleDict)
                ) else parent._modules.__setitem__(name, Packed(child.weight, child.bias, group))
            else:
                visit(child)

    visit(model)
    return model
