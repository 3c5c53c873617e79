"""Every block knows when it became free; the earliest is taken."""


class BlockPool:
    def __init__(self, size):
        self.since = list(range(-size, 0))  # a time, or None while somebody owns it
        self.owners, self.now = [0] * size, 0

    def free(self):
        return sum(time is not None for time in self.since)

    def count(self, block):
        return self.owners[block]

    def take(self):
        times = [(time, block) for block, time in enumerate(self.since) if time is not None]
        if not times:
            raise MemoryError
        block = min(times)[1]
        self.since[block], self.owners[block] = None, 1
        return block

    def share(self, block):
        if self.owners[block] < 1:
            raise ValueError(block)
        self.owners[block] += 1

    def release(self, block):
        if self.owners[block] < 1:
            raise ValueError(block)
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.now += 1
            self.since[block] = self.now
