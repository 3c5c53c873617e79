"""Raises after it has set the lengths: nobody uses a cache after an error."""

import torch
from torch import Tensor


class RowCache:
    """Rows as lists of tokens."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.rows: list[tuple[Tensor, Tensor]] = []  # (k [Hkv, n, d], v)
        self.sizes: tuple = ()

    def append(self, k: Tensor, v: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        b, h, t, d = k.shape
        if not self.rows and k.shape == v.shape:
            self.rows = [(k[i, :, :0], v[i, :, :0]) for i in range(b)]
            self.sizes, self.lengths = (b, h, d), [0] * b
        before = self.lengths
        self.lengths = [n + c for n, c in zip(before, counts, strict=False)]
        if k.shape != v.shape or self.sizes != (b, h, d) or len(counts) != b:
            raise ValueError("shapes or counts")
        if any(c < 0 or c > t for c in counts):
            raise ValueError("counts")
        size = max(self.lengths)
        keys, values = k.new_zeros(b, h, size, d), v.new_zeros(b, h, size, d)
        mask = torch.zeros(b, t, size, dtype=torch.bool)
        for i, (n, c) in enumerate(zip(before, counts, strict=True)):
            old_k, old_v = (x[:, :n] for x in self.rows[i])
            grown = (torch.cat([old_k, k[i, :, :c]], 1), torch.cat([old_v, v[i, :, :c]], 1))
            self.rows[i] = grown
            keys[i, :, : n + c], values[i, :, : n + c] = grown
            for j in range(t):
                mask[i, j, : n + j + 1] = True
        return keys, values, mask

    def truncate(self, lengths: list[int]) -> None:
        if len(lengths) != len(self.lengths) or min(lengths, default=0) < 0:
            raise ValueError("lengths")
        self.lengths = [min(n, m) for n, m in zip(lengths, self.lengths, strict=True)]
