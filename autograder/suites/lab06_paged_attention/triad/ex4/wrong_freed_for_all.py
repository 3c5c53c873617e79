"""free takes a block from all its owners."""

FAILS = ["test_random_walks_of_sequences", "test_long_walks_of_sequences", "test_beams"]


class Sequences(Sequences):
    def free(self, name):
        for block in reversed(self.table(name)):
            while self.pool.count(block):
                self.pool.release(block)
        del self.tables[name], self.lengths[name]
