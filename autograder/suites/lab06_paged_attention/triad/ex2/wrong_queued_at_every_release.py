"""Every release puts the block into the queue."""

FAILS = ["test_random_walks_of_the_pool", "test_long_walks_of_the_pool", "test_many_owners"]


class BlockPool(BlockPool):
    def release(self, block):
        super().release(block)
        if self.counts[block]:
            self.queue.append(block)
