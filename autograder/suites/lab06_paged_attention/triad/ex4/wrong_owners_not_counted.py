"""fork copies the table and no block knows of it."""

FAILS = [
    "test_copy_on_write_by_hand",
    "test_random_walks_of_sequences",
    "test_long_walks_of_sequences",
    "test_beams",
]


class Sequences(Sequences):
    def fork(self, name, child):
        super().fork(name, child)
        for block in self.tables[child]:
            self.pool.release(block)
