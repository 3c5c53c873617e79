"""share takes a free block out of the queue."""

FAILS = [
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def share(self, block):
        if self.counts[block] == 0:
            self.queue.remove(block)
        self.counts[block] += 1
