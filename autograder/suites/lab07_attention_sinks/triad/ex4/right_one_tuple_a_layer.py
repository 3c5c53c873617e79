"""Numbers, keys and values of a layer, and what it has seen, in one tuple."""

import torch

from efflib.models.rotary import rotate


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        if len(set(pinned)) >= size:
            raise ValueError("no place for a token that is not pinned")
        self.size, self.pinned, self.theta = size, set(pinned), theta
        self.layers = {}

    def append(self, layer, k, v):
        numbers, keys, values, seen = self.layers.get(layer, ([], k[:, :, :0], v[:, :, :0], 0))
        new = k.shape[2]
        if new > 1 and len(numbers) + new > self.size:
            raise ValueError("no place")
        keep = list(range(len(numbers)))
        if len(numbers) + new > self.size:
            out = next(i for i in keep if numbers[i] not in self.pinned)
            keep.remove(out)
        numbers = [numbers[i] for i in keep] + list(range(seen, seen + new))
        keys = torch.cat([keys[:, :, keep], k], dim=2)
        values = torch.cat([values[:, :, keep], v], dim=2)
        self.layers[layer] = numbers, keys, values, seen + new
        return rotate(keys, torch.arange(len(numbers)), self.theta), values

    def tokens(self):
        return list(self.layers[0][0]) if 0 in self.layers else []

    @property
    def length(self):
        return len(self.tokens())

    @property
    def next_position(self):
        return min(self.length, self.size - 1)
