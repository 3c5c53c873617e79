"""The empty deque's IndexError in place of MemoryError."""

FAILS = [
    "test_the_longest_free_comes_first",
    "test_random_walks_of_the_pool",
    "test_long_walks_of_the_pool",
    "test_errors_change_nothing",
]


class BlockPool(BlockPool):
    def take(self):
        block = self.queue.popleft()
        self.counts[block] = 1
        return block
