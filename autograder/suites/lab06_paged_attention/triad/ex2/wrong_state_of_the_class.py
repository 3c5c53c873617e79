"""All pools have one queue: it belongs to the class."""

FAILS = ["test_random_walks_of_the_pool", "test_long_walks_of_the_pool"]


class BlockPool(BlockPool):
    everything = {}

    def __init__(self, size):
        super().__init__(size)
        self.queue = self.everything.setdefault(size, self.queue)
