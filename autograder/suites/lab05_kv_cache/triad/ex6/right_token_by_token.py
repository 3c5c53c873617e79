"""Lists of single tokens, rounded as they fall due; bits are added up as tokens leave."""

import torch


class _Line:
    def __init__(self, bits, group, residual, way):
        self.bits, self.group, self.residual, self.way = bits, group, residual, way
        self.old, self.new, self.coded = [], [], 0  # pieces, waiting tokens, bits of codes

    def append(self, x):
        self.new += [token.clone() for token in x.split(1, dim=2)] if x.shape[2] else []
        old = (dequantize(*piece, self.way).to(x.dtype) for piece in self.old)  # noqa: F821
        out = torch.cat([*old, *self.new, x[:, :, :0]], dim=2)
        if self.way == "channel":
            while len(self.new) >= self.residual:
                self._leave(self.residual)
        else:
            while len(self.new) > self.residual:
                self._leave(1)
        return out

    def _leave(self, n):
        codes, scale, low = quantize(torch.cat(self.new[:n], 2), self.bits, self.group, self.way)  # noqa: F821
        self.old.append((codes, scale, low))
        self.coded += codes.numel() * self.bits + 16 * (scale.numel() + low.numel())
        del self.new[:n]


class QuantizedCache:
    def __init__(self, bits, group_size, residual, keys="channel"):
        if group_size <= 0 or residual <= 0 or residual % group_size:
            raise ValueError(f"residual {residual}, group_size {group_size}")
        if keys not in {"channel", "token"}:
            raise ValueError(keys)
        self.k = _Line(bits, group_size, residual, keys)
        self.v = _Line(bits, group_size, residual, "token")

    def append(self, k, v):
        return self.k.append(k), self.v.append(v)

    def bits_held(self):
        lines = (self.k, self.v)
        return sum(s.coded + 16 * sum(token.numel() for token in s.new) for s in lines)


def waiting(tokens, residual):
    return tokens - tokens // residual * residual, tokens if tokens < residual else residual
