"""Counted before it is checked: an error leaves -1 owners."""

FAILS = [
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def release(self, block):
        self.counts[block] -= 1
        if self.counts[block] < 0:
            raise ValueError("free already")
        if self.counts[block] == 0:
            self.queue.append(block)
