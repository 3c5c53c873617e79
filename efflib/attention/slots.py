"""The buffer of one layer of a `streaming.StreamingCache`: its slots are positions.

    slot     0  1  2  3  4  5  6  7        tokens a b c .., size 5, a and b pinned
             a  b  c  d  e                 five tokens: nothing has left
                a  b  d  e  f              c left
                   a  b  e  f  g           d left

A new token goes behind the last, turned by its slot. The pinned ones move up to the slots before
the oldest other token that stays, over tokens that left; the rest stays where it is. What is kept
is one piece of the buffer, and the distances in it are those of places in the cache.
"""

import torch
from torch import Tensor

from efflib.models.cache import put
from efflib.models.rotary import Turns, turn

ROOM = 4  # slots of a buffer, in sizes of the cache


def part(by: Turns, start: int, stop: int) -> Turns:
    """The turns of slots start .. stop - 1."""
    return by[0][start:stop], by[1][start:stop]


class Slots:
    """The pinned tokens older than token `oldest`, then all from that one to token `seen` - 1.

    The last of them is in slot `end` - 1.
    """

    def __init__(self, size: int, pinned: frozenset[int], k: Tensor, v: Tensor) -> None:
        self.size, self.pinned = size, pinned
        self.keys, self.values = (x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (k, v))
        self.pinned_seen: list[int] = []  # ascending
        self.pinned_keys, self.pinned_values = self.keys, self.values  # not turned [B, Hkv, n, d]
        self.oldest = self.seen = self.end = 0

    def apart(self) -> int:
        """How many pinned tokens are older than the oldest other one."""
        return sum(token < self.oldest for token in self.pinned_seen)

    def count(self) -> int:
        """How many tokens are kept."""
        return self.apart() + self.seen - self.oldest

    def numbers(self) -> list[int]:
        """The tokens that are kept, by their numbers in the text."""
        return [*self.pinned_seen[: self.apart()], *range(self.oldest, self.seen)]

    def kept(self) -> tuple[Tensor, Tensor]:
        """Keys and values [B, Hkv, S, d]: views, which the next token may change."""
        start = self.end - self.count()
        return self.keys[:, :, start : self.end], self.values[:, :, start : self.end]

    def append(self, k: Tensor, v: Tensor, by: Turns) -> None:
        """Drop what `size` has no room for beside the new tokens [B, Hkv, T, d]; add them."""
        if self._drop(k.shape[2]) and (n := self.apart()):
            first = self.end - self.count()
            turned = turn(self.pinned_keys[:, :, :n], part(by, first, first + n))
            self.keys = put(self.keys, first, turned)
            self.values = put(self.values, first, self.pinned_values[:, :, :n])
        start, end = self.end, self.end + k.shape[2]
        if end > self.keys.shape[2]:
            slots = max(end, ROOM * self.size)
            self.keys, self.values = _longer(self.keys, slots), _longer(self.values, slots)
        self.keys = put(self.keys, start, turn(k, part(by, start, end)))
        self.values = put(self.values, start, v)
        arrived = sorted(t for t in self.pinned if self.seen <= t < self.seen + k.shape[2])
        if arrived:
            i = torch.tensor(arrived, device=k.device) - self.seen
            self.pinned_seen += arrived
            self.pinned_keys = torch.cat([self.pinned_keys, k[:, :, i]], dim=2)
            self.pinned_values = torch.cat([self.pinned_values, v[:, :, i]], dim=2)
        self.seen, self.end = self.seen + k.shape[2], end

    def _drop(self, new: int) -> bool:
        """Choose the oldest token that stays beside `new` ones and the pinned; whether it moved."""
        before = self.oldest
        room = max(0, self.size - new - len(self.pinned_seen))  # for tokens that are not pinned
        while self.seen - self.oldest - (len(self.pinned_seen) - self.apart()) > room:
            self.oldest += 1
        return self.oldest > before

    def move_back(self, by: Turns) -> None:
        """Move what is kept to slot 0, turned back as far; the views handed out stay as they are.

        Only where it has reached the last sizes of the buffer, so that this is rare.
        """
        if self.end < (ROOM - 1) * self.size:
            return
        shift = self.end - self.count()
        cos, sin = part(by, shift, shift + 1)
        k, v = self.kept()
        self.end -= shift
        self.keys = _longer(turn(k, (cos, -sin)), ROOM * self.size)
        self.values = _longer(v, ROOM * self.size)


def _longer(buffer: Tensor, slots: int) -> Tensor:
    """A copy [B, Hkv, slots or more, d] of the buffer."""
    more = max(0, slots - buffer.shape[2])
    room = buffer.new_empty(*buffer.shape[:2], more, buffer.shape[3])
    return torch.cat([buffer, room], dim=2)
