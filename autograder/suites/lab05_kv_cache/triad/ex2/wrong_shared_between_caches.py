"""Lengths and keys lie on the class."""

import torch
from torch import Tensor

FAILS = ["test_rows_by_hand"]


class RowCache:
    """Keys and values of rows of unequal length."""

    lengths, k, v = [], None, None

    def append(self, k: Tensor, v: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        b, h, t, d = k.shape
        if k.shape != v.shape or len(counts) != b or not all(0 <= c <= t for c in counts):
            raise ValueError(f"k {tuple(k.shape)}, v {tuple(v.shape)}, counts {counts}")
        if RowCache.k is None:
            RowCache.k, RowCache.v, RowCache.lengths = k[:, :, :0], v[:, :, :0], [0] * b
        elif (b, h, d) != (*RowCache.k.shape[:2], RowCache.k.shape[3]):
            raise ValueError(f"{tuple(k.shape)} does not fit {tuple(RowCache.k.shape)}")
        before = RowCache.lengths
        RowCache.lengths = [n + c for n, c in zip(before, counts, strict=True)]
        size = max(RowCache.lengths)
        room = RowCache.k.new_zeros(b, h, size, d)
        keys, values = room.clone(), room
        for row, (n, c) in enumerate(zip(before, counts, strict=True)):
            for new, old, x in ((keys, RowCache.k, k), (values, RowCache.v, v)):
                new[row, :, :n] = old[row, :, :n]
                new[row, :, n : n + c] = x[row, :, :c]
        RowCache.k, RowCache.v = keys, values
        sees = torch.tensor(before)[:, None] + torch.arange(t) + 1  # [B, T] slots
        mask = torch.arange(size) < sees[:, :, None]
        return keys.clone(), values.clone(), mask

    def truncate(self, lengths: list[int]) -> None:
        if len(lengths) != len(RowCache.lengths) or any(n < 0 for n in lengths):
            raise ValueError(f"{lengths} for rows of {RowCache.lengths}")
        RowCache.lengths = [min(n, m) for n, m in zip(lengths, RowCache.lengths, strict=True)]
