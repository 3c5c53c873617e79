"""What help and hints say, word for word."""

import torch


class QuantizedCache:
    def __init__(self, bits, group_size, residual, keys="channel"):
        if keys not in ("channel", "token"):
            raise ValueError("keys")
        if group_size < 1 or residual < 1 or residual % group_size:
            raise ValueError("residual")
        self.bits, self.group, self.residual, self.keys = bits, group_size, residual, keys
        self.key_pieces, self.value_pieces = [], []
        self.new_keys = self.new_values = None

    def append(self, k, v):
        if self.new_keys is None:
            self.new_keys, self.new_values = k[:, :, :0].clone(), v[:, :, :0].clone()
        waiting_keys = torch.cat([self.new_keys, k], dim=2)
        waiting_values = torch.cat([self.new_values, v], dim=2)
        keys = [dequantize(*piece, self.keys).to(k.dtype) for piece in self.key_pieces]  # noqa: F821
        values = [dequantize(*piece, "token").to(v.dtype) for piece in self.value_pieces]  # noqa: F821
        keys, values = torch.cat([*keys, waiting_keys], 2), torch.cat([*values, waiting_values], 2)
        n = waiting_keys.shape[2]
        if self.keys == "channel":
            due = n // self.residual * self.residual
        else:
            due = max(0, n - self.residual)
        if due > 0:
            piece = quantize(waiting_keys[:, :, :due], self.bits, self.group, self.keys)  # noqa: F821
            self.key_pieces.append(piece)
        self.new_keys = waiting_keys[:, :, due:].clone()
        due = max(0, waiting_values.shape[2] - self.residual)
        if due > 0:
            piece = quantize(waiting_values[:, :, :due], self.bits, self.group, "token")  # noqa: F821
            self.value_pieces.append(piece)
        self.new_values = waiting_values[:, :, due:].clone()
        return keys, values

    def bits_held(self):
        if self.new_keys is None:
            return 0
        total = 16 * self.new_keys.numel() + 16 * self.new_values.numel()
        for codes, scale, _low in self.key_pieces + self.value_pieces:
            total += self.bits * codes.numel() + 32 * scale.numel()
        return total


def waiting(tokens, residual):
    return tokens % residual, min(tokens, residual)
