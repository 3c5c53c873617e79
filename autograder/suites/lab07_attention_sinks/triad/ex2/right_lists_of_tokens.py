"""A list of single tokens for each layer."""

from collections import defaultdict, deque

import torch


class WindowCache:
    def __init__(self, size):
        if size < 1:
            raise ValueError("no place at all")
        self.size = size
        self.rows = defaultdict(lambda: deque(maxlen=size))
        self.seen = defaultdict(int)

    def append(self, layer, k, v):
        new = k.shape[2]
        if new > self.size:
            raise ValueError("more than the window")
        for t in range(new):
            self.rows[layer].append((k[:, :, t].clone(), v[:, :, t].clone()))
        self.seen[layer] += new
        return tuple(torch.stack(part, dim=2) for part in zip(*self.rows[layer], strict=True))

    @property
    def length(self):
        return self.seen[0]

    def bytes(self):
        return sum(x.nbytes for rows in self.rows.values() for row in rows for x in row)
