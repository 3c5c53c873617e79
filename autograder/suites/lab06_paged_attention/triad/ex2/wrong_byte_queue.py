"""Free blocks noted in bytes: numbers from 256 on are other blocks."""

FAILS = ["test_long_walks_of_the_pool"]


class BlockPool(BlockPool):
    def release(self, block):
        super().release(block)
        if self.queue and self.queue[-1] == block:
            self.queue[-1] = block % 256
