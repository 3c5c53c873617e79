"""Owners in a default argument: the next pool begins with them."""

FAILS = ["test_random_walks_of_the_pool", "test_long_walks_of_the_pool"]


class BlockPool(BlockPool):
    def __init__(self, size, counts={}):  # noqa: B006
        super().__init__(size)
        self.counts = counts.setdefault(size, self.counts)
