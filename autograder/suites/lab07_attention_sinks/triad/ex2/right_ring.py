"""A ring of fixed size, gathered on return."""

import torch


class WindowCache:
    def __init__(self, size):
        if size < 1:
            raise ValueError("no place at all")
        self.size, self.rings, self.counts = size, {}, {}

    def append(self, layer, k, v):
        new = k.size(2)
        if new > self.size:
            raise ValueError(new)
        if layer not in self.rings:
            self.counts[layer] = 0
            self.rings[layer] = [
                torch.empty(*x.shape[:2], self.size, x.shape[3], dtype=x.dtype) for x in (k, v)
            ]
        places = (self.counts[layer] + torch.arange(new)) % self.size
        for ring, x in zip(self.rings[layer], (k, v), strict=True):
            ring[:, :, places] = x
        self.counts[layer] += new
        first = max(0, self.counts[layer] - self.size)
        order = torch.arange(first, self.counts[layer]) % self.size
        return tuple(ring[:, :, order] for ring in self.rings[layer])

    @property
    def length(self):
        return self.counts.get(0, 0)

    def bytes(self):
        total = 0
        for layer, rings in self.rings.items():
            rows = min(self.size, self.counts[layer])
            total += sum(ring[:, :, :rows].nbytes for ring in rings)
        return total
