"""take leaves the count at 0 until somebody shares."""

FAILS = [
    "test_the_longest_free_comes_first",
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_many_owners",
]


class BlockPool(BlockPool):
    def take(self):
        block = super().take()
        self.counts[block] = 0
        return block
