"""take returns None where no block is free."""

FAILS = [
    "test_the_longest_free_comes_first",
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def take(self):
        return super().take() if self.queue else None
