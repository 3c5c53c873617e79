"""Owned or not, in place of a count."""

FAILS = ["test_random_walks_of_the_pool", "test_long_walks_of_the_pool", "test_many_owners"]


class BlockPool(BlockPool):
    def share(self, block):
        super().share(block)
        self.counts[block] = 1
