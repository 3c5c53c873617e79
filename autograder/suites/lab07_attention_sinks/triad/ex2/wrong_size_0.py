"""A window of no tokens at all."""

import torch

FAILS = ["test_too_many_tokens", "test_errors_of_a_window"]


class WindowCache:
    def __init__(self, size):
        self.size, self.seen, self.layers = size, 0, {}

    def append(self, layer, k, v):
        if k.shape[2] > self.size:
            raise ValueError("too many tokens")
        if layer == 0:
            self.seen += k.shape[2]
        if layer in self.layers:
            k, v = (torch.cat(pair, dim=2) for pair in zip(self.layers[layer], (k, v), strict=True))
        self.layers[layer] = tuple(x[:, :, -self.size :] for x in (k, v))
        return self.layers[layer]

    @property
    def length(self):
        return self.seen

    def bytes(self):
        kept = [x[:, :, -self.size :] for pair in self.layers.values() for x in pair]
        return sum(x.numel() * x.element_size() for x in kept)
