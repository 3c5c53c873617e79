"""Keys are turned and returned in float32, whatever came."""

import torch

from efflib.models.rotary import rotate

FAILS = ["test_any_tokens_may_be_pinned", "test_dtypes_of_keys_and_values"]


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        self.pinned = set(pinned)
        if size <= len(self.pinned):
            raise ValueError("size must be larger than the number of pinned tokens")
        self.size, self.theta = size, theta
        self.layers = {}  # layer -> (numbers, k, v)
        self.seen = {}

    def append(self, layer, k, v):
        new = k.shape[2]
        numbers, old_k, old_v = self.layers.get(layer, ([], None, None))
        if new > 1 and len(numbers) + new > self.size:
            raise ValueError("no place for so many tokens at once")
        start = self.seen.get(layer, 0)
        numbers = numbers + list(range(start, start + new))
        k = k.clone() if old_k is None else torch.cat([old_k, k], 2)
        v = v.clone() if old_v is None else torch.cat([old_v, v], 2)
        if len(numbers) > self.size:
            gone = next(i for i, n in enumerate(numbers) if n not in self.pinned)
            stay = [i for i in range(len(numbers)) if i != gone]
            numbers = [numbers[i] for i in stay]
            k, v = k[:, :, stay], v[:, :, stay]
        self.layers[layer] = numbers, k, v
        self.seen[layer] = start + new
        return rotate(k.float(), torch.arange(k.shape[2]), self.theta), v

    def tokens(self):
        return list(self.layers[0][0]) if 0 in self.layers else []

    @property
    def length(self):
        return len(self.tokens())

    @property
    def next_position(self):
        return min(self.length, self.size - 1)
