"""One tensor of codes for keys and one for values, which grow; scales and minima beside them."""

from types import SimpleNamespace

import torch


class QuantizedCache:
    def __init__(self, bits, group_size, residual, keys="channel"):
        if group_size <= 0 or residual not in range(group_size, residual + 1, group_size):
            raise ValueError("residual")
        if keys not in {"channel", "token"}:
            raise ValueError("keys")
        self.settings = (bits, group_size)
        self.residual = residual
        self.k = SimpleNamespace(way=keys, held=None, wait=None)
        self.v = SimpleNamespace(way="token", held=None, wait=None)

    def append(self, k, v):
        results = [self._give(s, x) for s, x in ((self.k, k), (self.v, v))]
        self._round(self.k)
        self._round(self.v)
        return results[0], results[1]

    def _give(self, s, x):
        s.wait = x.detach().clone() if s.wait is None else torch.cat((s.wait, x), 2)
        if s.held is None:
            return s.wait.clone()
        return torch.cat((dequantize(*s.held, s.way).to(x.dtype), s.wait), 2)  # noqa: F821

    def _round(self, s):
        n = s.wait.size(2)
        due = n - n % self.residual if s.way == "channel" else n - self.residual
        if due <= 0:
            return
        new = quantize(s.wait[:, :, :due], *self.settings, s.way)  # noqa: F821
        s.held = (
            new if s.held is None else tuple(torch.cat(p, 2) for p in zip(s.held, new, strict=True))
        )
        s.wait = s.wait[:, :, due:].contiguous()

    def bits_held(self):
        bits = 0
        for s in (self.k, self.v):
            if s.held is not None:
                bits += self.settings[0] * s.held[0].numel() + 32 * s.held[1].numel()
            bits += 0 if s.wait is None else 16 * s.wait.numel()
        return bits


def waiting(tokens, residual):
    block, rest = divmod(tokens, residual)
    return rest, (residual if block else rest)
