"""A dictionary of single tokens for each layer."""

import torch

from efflib.models.rotary import rotate


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        self.pinned = frozenset(pinned)
        if not len(self.pinned) < size:
            raise ValueError("all places are pinned")
        self.size, self.theta, self.rows, self.count = size, theta, {}, {}

    def append(self, layer, k, v):
        rows, count = self.rows.setdefault(layer, {}), self.count.get(layer, 0)
        new = k.shape[2]
        if new != 1 and len(rows) + new > self.size:
            raise ValueError("the chunk does not fit")
        if len(rows) == self.size:
            del rows[min(set(rows) - self.pinned)]
        for i in range(new):
            rows[count + i] = k[:, :, i], v[:, :, i]
        self.count[layer] = count + new
        keys, values = (torch.stack(part, dim=2) for part in zip(*rows.values(), strict=True))
        return rotate(keys, torch.arange(len(rows)), self.theta), values

    def tokens(self):
        return sorted(self.rows.get(0, {}))

    @property
    def length(self):
        return len(self.rows.get(0, ()))

    @property
    def next_position(self):
        full = self.length == self.size
        return self.size - 1 if full else self.length
