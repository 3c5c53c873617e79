"""A free block can be released again, and stands in the queue twice."""

FAILS = [
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def release(self, block):
        if self.counts[block] == 0:
            self.queue.append(block)
        else:
            super().release(block)
