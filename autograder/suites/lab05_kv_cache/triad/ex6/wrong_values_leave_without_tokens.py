"""A call without tokens rounds one more."""

import torch
from torch import Tensor

FAILS = ["test_which_tokens_are_exact"]


class QuantizedCache:
    """Old keys and values of one layer as codes, the newest as they came."""

    def __init__(self, bits: int, group_size: int, residual: int, keys: str = "channel") -> None:
        if group_size < 1 or residual < 1 or residual % group_size:
            raise ValueError(f"residual={residual} must be a multiple of group_size={group_size}")
        if keys not in ("channel", "token"):
            raise ValueError(f"keys={keys!r}")
        self.bits, self.group_size, self.residual = bits, group_size, residual
        self.directions = (keys, "token")
        self.old = ([], [])  # of keys and of values: pieces (codes, scale, low)
        self.recent = [None, None]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self._add(0, k), self._add(1, v)

    def _add(self, i: int, x: Tensor) -> Tensor:
        direction, recent = self.directions[i], self.recent[i]
        recent = x.clone() if recent is None else torch.cat([recent, x], dim=2)
        past = [dequantize(*piece, direction).to(x.dtype) for piece in self.old[i]]  # noqa: F821
        n, r = recent.shape[2], self.residual
        due = n // r * r if direction == "channel" else max(0, n - r + (x.shape[2] == 0))
        if due:
            new = quantize(recent[:, :, :due], self.bits, self.group_size, direction)  # noqa: F821
            self.old[i].append(new)
        self.recent[i] = recent[:, :, due:]
        return torch.cat([*past, recent], dim=2)

    def bits_held(self) -> int:
        total = sum(16 * recent.numel() for recent in self.recent if recent is not None)
        for codes, scale, _ in (*self.old[0], *self.old[1]):
            total += self.bits * codes.numel() + 32 * scale.numel()
        return total
