"""A list and a deque; checked first, changed afterwards."""

from collections import deque


class BlockPool:
    def __init__(self, size):
        self.n = size * [0]
        self.waiting = deque()
        self.waiting.extend(range(size))

    def free(self):
        return len(self.waiting)

    def count(self, block):
        return self.n[block]

    def take(self):
        if len(self.waiting) == 0:
            raise MemoryError("no free block")
        block = self.waiting.popleft()
        self.n[block] += 1
        return block

    def share(self, block):
        if not self.n[block]:
            raise ValueError("free")
        self.n[block] += 1

    def release(self, block):
        if not self.n[block]:
            raise ValueError("free")
        self.n[block] -= 1
        if not self.n[block]:
            self.waiting.append(block)
