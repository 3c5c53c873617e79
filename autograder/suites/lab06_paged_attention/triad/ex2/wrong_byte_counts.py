"""Owners counted in bytes."""

FAILS = ["test_many_owners"]


class BlockPool:
    def __init__(self, size):
        self.counts, self.queue = bytearray(size), deque(range(size))

    def free(self):
        return len(self.queue)

    def count(self, block):
        return self.counts[block]

    def take(self):
        if not self.queue:
            raise MemoryError
        block = self.queue.popleft()
        self.counts[block] = 1
        return block

    def share(self, block):
        if not self.counts[block]:
            raise ValueError
        self.counts[block] = (self.counts[block] + 1) % 256

    def release(self, block):
        if not self.counts[block]:
            raise ValueError
        self.counts[block] -= 1
        if not self.counts[block]:
            self.queue.append(block)
