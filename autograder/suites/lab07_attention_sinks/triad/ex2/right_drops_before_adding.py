"""What has no place leaves first; a list of pairs."""

import torch


class WindowCache:
    def __init__(self, size):
        if size <= 0:
            raise ValueError("size")
        self.size, self.pairs, self.seen = size, [], 0

    def append(self, layer, k, v):
        new = k.size(2)
        if new > self.size:
            raise ValueError("a chunk longer than the window")
        if layer == len(self.pairs):
            self.pairs.append((k.clone(), v.clone()))
        else:
            room = self.size - new
            old = [x[:, :, max(0, x.size(2) - room) :] for x in self.pairs[layer]]
            self.pairs[layer] = tuple(torch.cat(both, 2) for both in zip(old, (k, v), strict=True))
        self.seen += new * (layer == 0)
        return self.pairs[layer]

    @property
    def length(self):
        return self.seen

    def bytes(self):
        return sum(x.numel() * x.element_size() for pair in self.pairs for x in pair)
