"""Lists that grow layer by layer; a flag for each kept token."""

import torch

from efflib.models.rotary import rotate


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        self.pinned = {int(t) for t in pinned}
        if size <= len(self.pinned):
            raise ValueError(f"{size} places for {sorted(self.pinned)} and one more")
        self.size, self.theta, self.numbers, self.raw = size, theta, [], []

    def append(self, layer, k, v):
        new = k.size(2)
        if layer == len(self.raw):
            if new > self.size:
                raise ValueError("longer than the cache")
            self.raw.append([k[:, :, :0], v[:, :, :0]])
            self.numbers.append(([], [0]))
        kept, seen = self.numbers[layer]
        if len(kept) + new > self.size:
            if new > 1:
                raise ValueError("no place")
            gone = [t in self.pinned for t in kept].index(False)
            del kept[gone]
            self.raw[layer] = [
                torch.cat([x[:, :, :gone], x[:, :, gone + 1 :]], 2) for x in self.raw[layer]
            ]
        kept.extend(range(seen[0], seen[0] + new))
        seen[0] += new
        self.raw[layer] = [torch.cat(both, 2) for both in zip(self.raw[layer], (k, v), strict=True)]
        keys, values = self.raw[layer]
        return rotate(keys, torch.arange(keys.size(2)), self.theta), values

    def tokens(self):
        return self.numbers[0][0][:] if self.numbers else []

    @property
    def length(self):
        return len(self.tokens())

    @property
    def next_position(self):
        return self.length - (self.length == self.size)
