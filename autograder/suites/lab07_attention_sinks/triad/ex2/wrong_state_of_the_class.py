"""One dictionary for all caches."""

import torch

FAILS = [
    "test_the_last_tokens_are_kept",
    "test_length_and_bytes",
    "test_too_many_tokens",
    "test_long_streams_through_a_window",
    "test_errors_of_a_window",
    "test_length_and_bytes_of_any_dtype",
]


class WindowCache:
    layers = {}

    def __init__(self, size):
        if size < 1:
            raise ValueError("no place at all")
        self.size, self.seen = size, 0

    def append(self, layer, k, v):
        if k.shape[2] > self.size:
            raise ValueError("too many tokens")
        if layer == 0:
            self.seen += k.shape[2]
        if layer in self.layers:
            k, v = (torch.cat(pair, dim=2) for pair in zip(self.layers[layer], (k, v), strict=True))
        self.layers[layer] = k[:, :, -self.size :], v[:, :, -self.size :]
        return self.layers[layer]

    @property
    def length(self):
        return self.seen

    def bytes(self):
        return sum(x.numel() * x.element_size() for pair in self.layers.values() for x in pair)
