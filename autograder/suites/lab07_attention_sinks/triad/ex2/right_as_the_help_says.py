"""What the help and the hints say, taken as they stand."""

import torch


class WindowCache:
    def __init__(self, size):
        if size < 1:
            raise ValueError("no place at all")
        self.size, self.k, self.v, self.tokens = size, {}, {}, 0

    def append(self, layer, k, v):
        if k.shape[2] > self.size:
            raise ValueError(f"{k.shape[2]} tokens")
        for old, new in ((self.k, k), (self.v, v)):
            both = torch.cat([old[layer], new], dim=2) if layer in old else new
            old[layer] = both[:, :, -self.size :]
        if layer == 0:
            self.tokens += k.shape[2]
        return self.k[layer], self.v[layer]

    @property
    def length(self):
        return self.tokens

    def bytes(self):
        return sum(x.numel() * x.element_size() for d in (self.k, self.v) for x in d.values())
