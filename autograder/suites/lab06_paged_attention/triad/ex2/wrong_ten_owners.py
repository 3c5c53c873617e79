"""At most ten owners are counted."""

FAILS = ["test_many_owners"]


class BlockPool(BlockPool):
    def share(self, block):
        super().share(block)
        self.counts[block] = min(self.counts[block], 10)
