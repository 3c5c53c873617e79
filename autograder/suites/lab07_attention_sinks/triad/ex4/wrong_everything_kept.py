"""All raw keys are stored, and who is seen is found anew: memory without a bound."""

import torch

from efflib.models.rotary import rotate

FAILS = ["test_memory_of_a_stream"]


class StreamingCache:
    keeps_raw_keys = True

    def __init__(self, size, pinned, theta):
        if len({*pinned}) >= size:
            raise ValueError("pinned")
        self.size, self.pinned, self.theta = size, tuple(pinned), theta
        self.all = {}

    def visible(self, seen):
        fixed = [t for t in range(seen) if t in self.pinned]
        others = [t for t in range(seen) if t not in self.pinned]
        room = self.size - len(fixed)
        return sorted(fixed + others[-room:])

    def append(self, layer, k, v):
        old = self.all.get(layer)
        seen = 0 if old is None else old[0].shape[2]
        if k.shape[2] > 1 and len(self.visible(seen)) + k.shape[2] > self.size:
            raise ValueError("too many")
        if old is not None:
            k, v = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
        self.all[layer] = k, v
        kept = self.visible(k.shape[2])
        return rotate(k[:, :, kept], torch.arange(len(kept)), self.theta), v[:, :, kept]

    def tokens(self):
        return self.visible(self.all[0][0].shape[2]) if self.all else []

    @property
    def length(self):
        return len(self.tokens())

    @property
    def next_position(self):
        return min(len(self.tokens()), self.size - 1)
