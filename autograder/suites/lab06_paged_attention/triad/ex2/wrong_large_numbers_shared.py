"""Owners of blocks beyond 255 are not counted by share."""

from collections import deque

FAILS = ["test_long_walks_of_the_pool"]


class BlockPool:
    def __init__(self, size):
        self.owners = [0] * size
        self.line = deque(range(size))

    def free(self):
        return len(self.line)

    def count(self, block):
        return self.owners[block]

    def take(self):
        if not self.line:
            raise MemoryError("no free block")
        block = self.line.popleft()
        self.owners[block] = 1
        return block

    def share(self, block):
        if self.owners[block] == 0:
            raise ValueError("free")
        self.owners[block] += block < 256

    def release(self, block):
        if self.owners[block] == 0:
            raise ValueError("free")
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.line.append(block)
