"""What was returned is kept as well, in a list."""

import torch

from efflib.models.rotary import rotate

FAILS = ["test_memory_of_a_stream"]


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        if len(set(pinned)) >= size:
            raise ValueError("no place for a token that is not pinned")
        self.size, self.pinned, self.theta = size, set(pinned), theta
        self.layers, self.last = {}, 0

    def append(self, layer, k, v):
        numbers, keys, values, seen = self.layers.get(layer, ([], k[:, :, :0], v[:, :, :0], 0))
        new = k.shape[2]
        if new > 1 and len(numbers) + new > self.size:
            raise ValueError("no place")
        keep = list(range(len(numbers)))
        if len(numbers) + new > self.size:
            keep.remove(next(i for i in keep if numbers[i] not in self.pinned))
        numbers = [numbers[i] for i in keep] + list(range(seen, seen + new))
        keys = torch.cat([keys[:, :, keep], k], dim=2)
        values = torch.cat([values[:, :, keep], v], dim=2)
        self.layers[layer], self.last = (numbers, keys, values, seen + new), layer
        return (
            self.__dict__.setdefault("given", []).append(
                (rotate(keys, torch.arange(len(numbers)), self.theta), values)
            )
            or self.given[-1]
        )

    def tokens(self):
        return list(self.layers[0][0]) if self.layers else []

    @property
    def length(self):
        return len(self.tokens())

    @property
    def next_position(self):
        return min(self.length, self.size - 1)
