"""Parent and child have one and the same list."""

FAILS = [
    "test_copy_on_write_by_hand",
    "test_random_walks_of_sequences",
    "test_long_walks_of_sequences",
    "test_beams",
]


class Sequences(Sequences):
    def fork(self, name, child):
        super().fork(name, child)
        self.tables[child] = self.tables[name]

    def append(self, name, tokens):
        table = self.tables.get(name)
        copies = super().append(name, tokens)
        if table is not None:
            table[:] = self.tables[name]
            self.tables[name] = table
        return copies
