# Filled up with zeros, [N, groups, group], cut and packed; a row begins with a byte of its own.


def nibbles(codes):
    codes = codes.to(torch.int64)
    if codes.shape[1] % 2:
        codes = torch.cat([codes, torch.zeros(codes.shape[0], 1, dtype=torch.int64)], 1)
    return (codes[:, 0::2] + 16 * codes[:, 1::2]).to(torch.uint8)


def bytes_to_codes(stored, columns):
    stored = stored.to(torch.int64)
    out = torch.empty(stored.shape[0], 2 * stored.shape[1])
    out[:, 0::2], out[:, 1::2] = (stored % 16).float(), (stored // 16).float()
    return out[:, :columns]


class Packed(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        with torch.no_grad():
            n, k = weight.shape
            groups = (k + group - 1) // group
            filled = torch.zeros(n, groups * group)
            filled[:, :k] = weight.float()
            filled = filled.reshape(n, groups, group)
            lo = torch.minimum(filled.amin(2), torch.zeros(()))
            hi = torch.maximum(filled.amax(2), torch.zeros(()))
            scale = torch.maximum((hi - lo) / 15, torch.tensor(2.0**-14)).to(torch.float16)
            zero = torch.clamp(torch.round(-lo / scale.float()), 0, 15)
            codes = torch.round(filled / scale.float()[:, :, None]) + zero[:, :, None]
            codes = codes.clamp(0, 15).reshape(n, -1)[:, :k]
            self.k, self.group = k, group
            self.register_buffer("scales", scale)
            self.register_buffer("zeros", nibbles(zero))
            self.register_buffer("codes", nibbles(codes))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), False)

    def forward(self, x):
        groups = self.scales.shape[1]
        zero = bytes_to_codes(self.zeros, groups).repeat_interleave(self.group, 1)[:, : self.k]
        scale = self.scales.float().repeat_interleave(self.group, 1)[:, : self.k]
        w = (bytes_to_codes(self.codes, self.k) - zero) * scale
        y = x @ w.to(x.dtype).T
        if self.bias is not None:
            y = y + self.bias
        return y


def quantized(model, group):
    from collections import Counter
    from copy import deepcopy

    new = deepcopy(model)
    count = Counter(id(p) for m in new.modules() for p in m._parameters.values() if p is not None)
    for name, module in list(new.named_modules()):
        if isinstance(module, nn.Linear) and count[id(module.weight)] == 1:
            new.set_submodule(name, Packed(module.weight, module.bias, group))
    return new
