"""A free block can be shared while it waits in the queue."""

FAILS = [
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def share(self, block):
        self.counts[block] += 1
