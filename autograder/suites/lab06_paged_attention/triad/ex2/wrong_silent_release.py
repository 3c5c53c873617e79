"""Releasing a free block is no error."""

FAILS = [
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def release(self, block):
        if self.counts[block]:
            super().release(block)
