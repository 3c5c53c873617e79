"""The count stops at two owners."""

FAILS = ["test_long_walks_of_the_pool", "test_many_owners"]


class BlockPool(BlockPool):
    def share(self, block):
        super().share(block)
        self.counts[block] = min(self.counts[block], 2)
