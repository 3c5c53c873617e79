"""A fork over a sequence that exists replaces it."""

FAILS = ["test_random_walks_of_sequences", "test_long_walks_of_sequences"]


class Sequences(Sequences):
    def fork(self, name, child):
        table, length = self.table(name), self.length(name)
        if child in self.tables and child != name:
            self.free(child)
            for block in table:
                self.pool.share(block)
            self.tables[child], self.lengths[child] = table, length
        else:
            super().fork(name, child)
