"""Keeps everything that came, and rounds from it what is old in each call."""

import torch


class QuantizedCache:
    def __init__(self, bits, group_size, residual, keys="channel"):
        if residual <= 0 or group_size <= 0 or residual % group_size != 0:
            raise ValueError("residual")
        if keys != "channel" and keys != "token":
            raise ValueError("keys")
        self.settings, self.came = (bits, group_size, residual, keys), None

    def _due(self, tokens):
        late = max(0, tokens - self.settings[2])
        return (tokens - tokens % self.settings[2] if self.settings[3] == "channel" else late, late)

    def append(self, k, v):
        bits, group, _, keys = self.settings
        before = (k[:, :, :0], v[:, :, :0]) if self.came is None else self.came
        out, self.came = [], []
        for old, new, due, way in zip(
            before, (k, v), self._due(before[0].shape[2]), (keys, "token"), strict=True
        ):
            x = torch.cat([old, new], dim=2)
            self.came.append(x)
            y = x.clone()
            if due:
                y[:, :, :due] = dequantize(*quantize(x[:, :, :due], bits, group, way), way)  # noqa: F821
            out.append(y)
        return out[0], out[1]

    def bits_held(self):
        bits, group, _, _ = self.settings
        if self.came is None:
            return 0
        b, h, n, d = self.came[0].shape
        total = 0
        for due in self._due(n):
            total += b * h * d * (16 * (n - due) + due * bits) + b * h * due * d // group * 32
        return total


def waiting(tokens, residual):
    keys = values = 0
    for _ in range(tokens):
        keys, values = (keys + 1) % residual, min(values + 1, residual)
    return keys, values
