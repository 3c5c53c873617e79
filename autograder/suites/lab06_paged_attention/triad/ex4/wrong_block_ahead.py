"""A block more is taken as soon as the last one is full."""

FAILS = [
    "test_copy_on_write_by_hand",
    "test_random_walks_of_sequences",
    "test_long_walks_of_sequences",
    "test_when_blocks_run_out",
]


class Sequences(Sequences):
    def append(self, name, tokens):
        length = self.lengths.get(name, 0) + tokens
        copies = super().append(name, tokens)
        if tokens and length % self.block_size == 0 and self.pool.free():
            self.tables[name] = self.tables[name] + [self.pool.take()]
        return copies
