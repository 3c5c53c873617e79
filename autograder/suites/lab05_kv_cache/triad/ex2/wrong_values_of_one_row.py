"""Another number of rows in the values is not noticed: one serves all."""

import torch
from torch import Tensor

FAILS = ["test_what_does_not_fit"]


class RowCache:
    """Keys and values of rows of unequal length."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.k = self.v = None  # [B, Hkv, S, d]

    def append(self, k: Tensor, v: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        b, h, t, d = k.shape
        if k.shape[1:] != v.shape[1:] or len(counts) != b or not all(0 <= c <= t for c in counts):
            raise ValueError(f"k {tuple(k.shape)}, v {tuple(v.shape)}, counts {counts}")
        if self.k is None:
            self.k, self.v, self.lengths = k[:, :, :0], v[:, :, :0], [0] * b
        elif (b, h, d) != (*self.k.shape[:2], self.k.shape[3]):
            raise ValueError(f"{tuple(k.shape)} does not fit {tuple(self.k.shape)}")
        before = self.lengths
        self.lengths = [n + c for n, c in zip(before, counts, strict=True)]
        size = max(self.lengths)
        room = self.k.new_zeros(b, h, size, d)
        keys, values = room.clone(), room
        for row, (n, c) in enumerate(zip(before, counts, strict=True)):
            for new, old, x in ((keys, self.k, k), (values, self.v, v)):
                new[row, :, :n] = old[row, :, :n]
                new[row, :, n : n + c] = x.expand(b, h, t, d)[row, :, :c]
        self.k, self.v = keys, values
        sees = torch.tensor(before)[:, None] + torch.arange(t) + 1  # [B, T] slots
        mask = torch.arange(size) < sees[:, :, None]
        return keys.clone(), values.clone(), mask

    def truncate(self, lengths: list[int]) -> None:
        if len(lengths) != len(self.lengths) or any(n < 0 for n in lengths):
            raise ValueError(f"{lengths} for rows of {self.lengths}")
        self.lengths = [min(n, m) for n, m in zip(lengths, self.lengths, strict=True)]
